"""The journal: a cut line is recovered from, whoever finds it; what is no journal is named."""

from pathlib import Path

import optuna
import pytest
from tuning_problems import done, place, problem

from servegym.tuning.journal import JOURNAL, FileLock, Journal, cut_tail, open_journal
from servegym.tuning.search import search


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder with a study of three trials."""
    search(problem(), place(tmp_path), 3)
    return tmp_path


@pytest.mark.parametrize(
    "end", [b'{"op_code": 6, "worker_id": "x", "tri', b'{"op_code": 6\n', b"\0\0\0"]
)
def test_case_30_broken_last_line_is_cut_off_and_the_study_goes_on(finished: Path, end: bytes):
    """A cut last journal line is recovered from: nothing that was finished is lost."""
    journal = finished / JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole + end)
    said: list[str] = []
    before = done(search(problem(), place(finished), 3, say=said.append).trials)
    assert len(before) == 3 and journal.read_bytes() == whole
    assert len(said) == 1 and f"({len(end)} bytes)" in said[0]
    assert done(search(problem(), place(finished), 4).trials)[:3] == before


def test_case_30_line_cut_in_its_middle_loses_that_step_only(finished: Path):
    """The last line says that trial 2 is complete; without it, it was running, and is played again as another."""
    journal = finished / JOURNAL
    before = done(search(problem(), place(finished), 3).trials)
    journal.write_bytes(journal.read_bytes()[:-20])
    trials = search(problem(), place(finished), 3, say=lambda _: None).trials
    assert [t.state.name for t in trials] == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    assert done(trials) == before


def test_writer_that_comes_after_a_killed_one_does_not_append_to_its_half_line(tmp_path: Path):
    path = tmp_path / JOURNAL
    study = optuna.create_study(storage=open_journal(path)[0], study_name="a")
    with path.open("ab") as file:
        file.write(b'{"op_code": 5, "wor')  # another process was killed here
    study.set_user_attr("k", 1)
    again = optuna.load_study(study_name="a", storage=open_journal(path)[0])
    assert again.user_attrs == {"k": 1}


def test_only_the_unfinished_line_is_cut(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n{"c"')
    assert cut_tail(path) == 4
    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n'
    assert cut_tail(path) == 0
    path.write_bytes(b"x" * 200_000)  # longer than what is read at once
    assert cut_tail(path) == 200_000


def test_broken_line_in_the_middle_is_an_error_that_names_the_file(finished: Path):
    journal = finished / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], b"nonsense\n", *lines[3:]]))
    with pytest.raises(ValueError, match=r"journal\.log is no journal"):
        open_journal(journal)


def test_lock_excludes_and_is_free_again(tmp_path: Path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with first:
        assert not second.acquire(is_waiting=False)
    assert second.acquire(is_waiting=False)
    second.release()


def test_lock_file_that_a_killed_process_left_holds_nobody_up(tmp_path: Path):
    (tmp_path / f"{JOURNAL}.flock").touch()
    journal = Journal(tmp_path / JOURNAL)
    journal.append_logs([{"op_code": 0, "study_name": "a", "directions": [1]}])  # would wait 30 s
    assert len(list(journal.read_logs(0))) == 1
