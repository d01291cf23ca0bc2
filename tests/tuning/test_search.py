"""Searches: exact totals, after kills and among several workers; the same trials in a new process; failures."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from tuning_problems import SEEDS, done, n_ended, place, problem, start, stored

from servegym.tuning import search as searching
from servegym.tuning.journal import JOURNAL
from servegym.tuning.liveness import WORKER, Worker, boot_id, fail_abandoned
from servegym.tuning.player import Player
from servegym.tuning.search import DEFAULT, ORIGIN, open_study, search
from servegym.tuning.tally import KILLED, REASON, SURPLUS, is_surplus, tally
from servegym.tuning.waits import Waits

TOTAL = 24
PATIENCE_S = 120.0


def wait_until(is_so: Any) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def numbers(trials: list[Any]) -> list[int]:
    return [trial.number for trial in trials]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What identifies the trials of a search in this process that nothing disturbed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return done(search(problem(), place(folder), TOTAL).get_trials())


def test_default_is_the_first_trial_and_the_total_is_exact(uninterrupted: list[Any]):
    assert uninterrupted[0][0] == {"peak": 0.2, "form": "exponential"}
    assert len(uninterrupted) == TOTAL


def test_value_of_a_trial_is_the_mean_of_its_seeds(uninterrupted: list[Any]):
    player = Player(problem())
    for params, by_seed, value in uninterrupted[:3]:
        played = [player.value(params, seed) for seed in range(SEEDS)]
        assert by_seed == dict(enumerate(played))
        assert value == pytest.approx(sum(played) / SEEDS, rel=1e-12)


def test_same_seed_and_one_worker_give_identical_trials_in_a_new_process(
    uninterrupted: list[Any], tmp_path: Path
):
    process = start(tmp_path / "new", "--trials", str(TOTAL))
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, complaint
    assert done(stored(tmp_path / "new")) == uninterrupted


def test_another_seed_gives_other_trials(uninterrupted: list[Any], tmp_path: Path):
    other = done(search(problem(seed=7), place(tmp_path), 3).get_trials())
    assert other[0][0] == uninterrupted[0][0]  # the default
    assert other[1][0] != uninterrupted[1][0]


def test_case_30_killed_study_resumes_to_the_exact_total_as_if_never_killed(
    uninterrupted: list[Any], tmp_path: Path
):
    """A study killed with SIGKILL resumes: finished trials kept, the killed one FAIL, the total reached exactly."""
    folder = tmp_path / "killed"
    process = start(folder, "--trials", "1000")
    wait_until(lambda: n_ended(folder) >= 5)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    # what the dead process left, read without looking after it
    before = open_study(problem(), place(folder), print).get_trials()
    finished = [t for t in before if t.state == TrialState.COMPLETE]
    left = [t.number for t in before if t.state == TrialState.RUNNING]
    total = max(TOTAL, len(finished) + 3)
    assert len(left) <= 1 and len(finished) >= 5

    after = search(problem(), place(folder), total).get_trials()
    kept = [after[t.number] for t in finished]
    assert [(t.number, t.params, t.value, t.intermediate_values) for t in kept] == [
        (t.number, t.params, t.value, t.intermediate_values) for t in finished
    ]
    assert [t.number for t in after if t.state == TrialState.FAIL] == left
    assert all(after[n].user_attrs[REASON] == KILLED for n in left)
    assert len(done(after)) == total
    assert numbers(after) == list(range(total + len(left)))
    assert done(after)[:TOTAL] == uninterrupted


def test_case_30_trial_left_running_by_a_dead_worker_fails_and_the_default_is_played_again(
    tmp_path: Path,
):
    """The killed trial is FAIL; if it was the default, the default is asked for again."""
    study = open_study(problem(), place(tmp_path), print)
    searching.enqueue_default(study, problem())
    with Worker(tmp_path) as worker:
        trial = study.ask()
        trial.set_user_attr(WORKER, worker.name)
        assert fail_abandoned(study) == []  # its worker lives
    after = search(problem(), place(tmp_path), 4).get_trials()
    assert [t.state for t in after] == [TrialState.FAIL] + [TrialState.COMPLETE] * 4
    assert [t.user_attrs.get(ORIGIN) for t in after[:3]] == [DEFAULT, DEFAULT, None]


def test_trial_of_a_living_search_is_left_alone_and_waited_for(tmp_path: Path):
    study = open_study(problem(), place(tmp_path), print)
    with Worker(tmp_path) as worker:
        trial = study.ask()
        trial.set_user_attr(WORKER, worker.name)
        process = start(tmp_path, "--trials", "3")
        wait_until(lambda: n_ended(tmp_path) == 2)  # the third is ours
        time.sleep(0.3)
        assert n_ended(tmp_path) == 2 and process.poll() is None
        trial.suggest_float("peak", 0.0, 0.6)
        trial.suggest_categorical("form", ("exponential", "linear"))
        for seed in range(SEEDS):
            trial.report(1.0, step=seed)
        study.tell(trial, 1.0)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert tally(study).complete == 3 and tally(study).lost == 0


def left_running(folder: Path, worker: str) -> Any:
    """Return a study with one RUNNING trial of that worker, and nothing else."""
    study = open_study(problem(), place(folder), print)
    study.ask().set_user_attr(WORKER, worker)
    return study


def test_trial_of_another_machine_is_told_and_waited_for_until_it_is_taken_over(tmp_path: Path):
    """Once at the start and once when all others are done, with its host and what to do."""
    folder = tmp_path / "shared"
    left_running(folder, "gone-host@other-boot:/elsewhere/x.lock")
    process = start(folder, "--trials", "3")
    wait_until(lambda: n_ended(folder) == 2)
    time.sleep(1.0)  # some rounds of waiting
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    told = [line for line in complaint.splitlines() if "trial 0 of gone-host" in line]
    assert [line.partition(":")[0].partition(" trial")[0] for line in told] == [
        "counted as running",
        "waiting for",
    ]
    assert all("--take-over" in line for line in told)

    process = start(folder, "--trials", "3", "--take-over")
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "now FAIL: 0" in complaint
    assert [t.state for t in stored(folder)] == [TrialState.FAIL] + [TrialState.COMPLETE] * 3


@pytest.mark.parametrize(
    ("host", "boot", "has_lock", "is_dead"),
    [
        ("own", "own", True, True),  # killed: nobody holds its lock
        ("own", "own", False, True),
        ("own", "", False, True),  # as stored before boots were
        ("other", "own", True, True),  # another container of this machine, killed
        ("other", "own", False, False),  # ... whose files may be elsewhere
        ("other", "other", True, False),  # another machine, with the same path
        ("other", "", True, False),
    ],
)
def test_worker_is_dead_where_its_lock_is_this_machines_and_free(
    host: str, boot: str, has_lock: bool, is_dead: bool, tmp_path: Path
):
    if boot == "own" != host and not boot_id():
        pytest.skip("this system has no boot id")
    lock = tmp_path / "x.lock"
    if has_lock:
        lock.touch()
    host = socket.gethostname() if host == "own" else host
    boot = boot_id() if boot == "own" else boot
    study = left_running(tmp_path, f"{host}{'@' if boot else ''}{boot}:{lock}")
    assert fail_abandoned(study) == ([0] if is_dead else [])
    assert fail_abandoned(study, takes_over=True) == ([] if is_dead else [0])


def test_living_worker_is_never_taken_over(tmp_path: Path):
    with Worker(tmp_path) as worker:
        study = left_running(tmp_path, worker.name)
        assert fail_abandoned(study, takes_over=True) == []
        _, _, rest = worker.name.partition("@")
        if boot_id():  # another container's
            other = left_running(tmp_path / "other", f"container@{rest}")
            assert fail_abandoned(other, takes_over=True) == []


def test_long_wait_for_a_living_worker_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = [0.0]
    monkeypatch.setattr("servegym.tuning.waits.time.monotonic", lambda: clock[0])
    said: list[str] = []
    with Worker(tmp_path) as worker:
        study = left_running(tmp_path, worker.name)
        waits = Waits(study, 1, said.append)
        for clock[0] in (1.0, 9.0, 11.0):  # 10 s have passed: not before
            waits.look(tally(study))
            assert said == []
        for clock[0] in (11.1, 12.0):
            waits.look(tally(study))
            assert said == [f"waiting for trial 0 of {socket.gethostname()}"]


def test_case_30_trial_that_no_worker_named_is_waited_for_and_the_search_goes_on_as_if_never_killed(
    uninterrupted: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A worker killed between asking for a trial and naming it leaves one whose parameters come again."""
    search(problem(), place(tmp_path), 5)
    left = open_study(problem(), place(tmp_path), print).ask().number
    monkeypatch.setattr("servegym.tuning.liveness.UNNAMED_S", 1.0)
    said: list[str] = []
    after = search(problem(), place(tmp_path), TOTAL, say=said.append).get_trials()
    assert [t.number for t in after if t.state == TrialState.FAIL] == [left]
    assert done(after) == uninterrupted
    assert said[0] == f"no worker has put its name to trials {left}: waiting for up to 1 s"


def test_case_30_two_workers_at_once_lose_nothing(tmp_path: Path):
    """A command of two workers and a search here, on one journal: the total is exact, every trial has all its seeds."""
    folder = tmp_path / "shared"
    process = start(folder, "--trials", "100", "--workers", "2")
    wait_until(lambda: n_ended(folder) >= 2)
    search(problem(), place(folder), 100)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, complaint
    check_nothing_lost(stored(folder), 100)


@pytest.mark.slow
def test_case_30_two_commands_of_two_workers_lose_nothing(tmp_path: Path):
    """They make the study, ask for the default and end at the same time."""
    folder = tmp_path / "shared"
    processes = [start(folder, "--trials", str(TOTAL), "--workers", "2") for _ in range(2)]
    for process in processes:
        _, complaint = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, complaint
    check_nothing_lost(stored(folder), TOTAL)


def check_nothing_lost(trials: list[Any], total: int) -> None:
    assert numbers(trials) == list(range(len(trials)))
    assert [t.state for t in trials].count(TrialState.COMPLETE) == total
    extra = [t for t in trials if t.state != TrialState.COMPLETE]
    assert all(t.user_attrs[REASON] == SURPLUS for t in extra)
    assert [t.user_attrs.get(ORIGIN) for t in trials].count(DEFAULT) == 1
    player = Player(problem())
    for trial in (t for t in trials if t.state == TrialState.COMPLETE):
        assert set(trial.intermediate_values) == set(range(SEEDS))
        assert trial.intermediate_values[0] == player.value(trial.params, 0)
    assert len({t.user_attrs[WORKER] for t in trials}) > 1


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children that play trials (one more tracks resources)."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in listed
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_case_30_total_is_exact_when_one_of_two_workers_is_killed(tmp_path: Path):
    """The other worker makes FAIL of the trial of the dead one and plays another in its place."""
    folder = tmp_path / "one"
    total = 60
    process = start(folder, "--trials", str(total), "--workers", "2")
    wait_until(lambda: n_ended(folder) >= 3)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, complaint
    trials = stored(folder)
    states = [t.state for t in trials]
    assert states.count(TrialState.COMPLETE) == total and TrialState.RUNNING not in states
    assert all(
        t.user_attrs[REASON] in (KILLED, SURPLUS) for t in trials if t.state == TrialState.FAIL
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path):
    folder = tmp_path / "orphans"
    process = start(folder, "--trials", "100000", "--workers", "2")
    wait_until(lambda: n_ended(folder) >= 3)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not any(is_running(pid) for pid in workers))
    study = open_study(problem(), place(folder), print)
    assert fail_abandoned(study) == []  # they ended their trials


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_interrupted_study_says_how_to_go_on(tmp_path: Path):
    folder = tmp_path / "interrupted"
    process = start(folder, "--trials", "100000")
    wait_until(lambda: n_ended(folder) >= 2)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "run the same command again to go on" in complaint
    trials = stored(folder)
    assert all(t.user_attrs[REASON] == "interrupted" for t in trials if t.state == TrialState.FAIL)
    assert TrialState.RUNNING not in [t.state for t in trials]
    total = len(done(trials)) + 2
    assert len(done(search(problem(), place(folder), total).get_trials())) == total


def test_of_trials_asked_for_at_once_no_more_than_the_total_go_on(tmp_path: Path):
    study = open_study(problem(), place(tmp_path), print)
    asked = [study.ask() for _ in range(4)]
    # total 3: trials 0, 1, 2 have 0, 1, 2 before them; trial 3 has three
    assert [is_surplus(study, t.number, 3) for t in asked] == [False, False, False, True]
    study.tell(asked[1], state=TrialState.FAIL)
    assert not is_surplus(study, 3, 3)


def test_finished_study_is_prolonged_but_never_shortened(tmp_path: Path):
    assert len(search(problem(), place(tmp_path), 2).trials) == 2
    assert len(search(problem(), place(tmp_path), 1).trials) == 2
    assert len(search(problem(), place(tmp_path), 3).trials) == 3


def test_study_of_another_problem_is_an_error_that_names_the_difference(tmp_path: Path):
    search(problem(), place(tmp_path), 1)
    with pytest.raises(ValueError, match=r"load: 1\.1, now 0\.9.*or name another --out$"):
        search(problem(load=0.9), place(tmp_path), 1)
    config = problem().cluster | {"instances": 3}
    with pytest.raises(ValueError, match=r"instances: 2, now 3"):
        search(problem(cluster=config), place(tmp_path), 1)


def test_any_storage_url_will_do(tmp_path: Path):
    kept = searching.Place(tmp_path, "n-tier", f"sqlite:///{tmp_path}/trials.db")
    first = search(problem(), kept, 2)
    again = search(problem(), kept, 3)
    assert done(again.trials)[:2] == done(first.trials)[:2]
    assert len(again.trials) == 3 and not (tmp_path / JOURNAL).exists()
    with pytest.raises(ValueError, match="--storage nonsense"):
        search(problem(), searching.Place(tmp_path, "n-tier", "nonsense"), 1)


def test_case_31_crashing_trial_fails_with_its_parameters_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A crashing trial is FAIL, its parameters and the reason are logged, and the total is still reached."""
    honest = Player.value

    def crash(self: Player, params: Any, seed: int) -> float:
        if params["form"] == "linear":
            raise RuntimeError("linear is broken")
        return honest(self, params, seed)

    monkeypatch.setattr(Player, "value", crash)
    said: list[str] = []
    study = search(problem(), place(tmp_path), 5, max_faults=100, say=said.append)
    counts = tally(study)
    assert counts.done == 5 and counts.failed > 0
    assert counts.faults == {"RuntimeError: linear is broken": counts.failed}
    assert len(said) == counts.failed
    assert all("'form': 'linear'" in text and "linear is broken" in text for text in said)
    failed = [t.params["peak"] for t in study.trials if t.state == TrialState.FAIL]
    assert len(set(failed)) == len(failed)  # the same is not tried again


def test_case_31_nan_objective_fails_and_says_at_which_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A NaN is no value: the trial fails, it is not the best of all."""
    monkeypatch.setattr("servegym.agents.objectives.Objective.of", lambda *_: float("nan"))
    study = search(problem(), place(tmp_path), 5, max_faults=3, say=lambda _: None)
    counts = tally(study)
    assert (counts.done, counts.failed) == (0, 3)
    assert list(counts.faults) == ["ValueError: mean-e2e is nan at seed 0"]
