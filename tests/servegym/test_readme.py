"""The Python of the README and of the page on policies runs as it stands, and the README's commands are understood."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from servegym.__main__ import COMMANDS, main
from servegym.baselines.system_table import SYSTEMS
from servegym.baselines.systems import find_system

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
POLICIES = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = PYTHON.findall(README)
COMMAND_LINES = [
    line.partition("#")[0].strip()
    for line in [*README.splitlines(), *PAGE.splitlines()]
    if line.startswith("    servegym ")
]


def output_of(program: str) -> str:
    """Return what a program prints in a process of its own: policies stay out of this one."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_five_lines_print_a_percentile_and_the_requests():
    text = output_of(BLOCKS[0])
    assert float(text.split()[0]) > 0.0 and "e2e_s" in text and "10000 rows" in text


def test_the_ten_line_policy_is_compared_under_its_own_name():
    text = output_of(BLOCKS[1])
    assert "queue-averse" in text and "minus least-requests" in text


def test_the_pictures_of_the_five_lines_are_drawn(tmp_path: Path):
    program = BLOCKS[0] + BLOCKS[2]
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)
    assert "Timeline of a run" in (tmp_path / "run.html").read_text()


def test_the_sweep_of_the_load_is_drawn(tmp_path: Path):
    subprocess.run([sys.executable, "-c", BLOCKS[3]], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_environment_plays_an_episode():
    assert float(output_of(BLOCKS[4])) > 0.0


def test_the_example_of_the_page_on_policies_uses_one_of_each_kind(tmp_path: Path):
    block, _, _, _ = PYTHON.findall(POLICIES)
    (tmp_path / "example.py").write_text(block)  # a file, as a user's: helpers are cached by theirs
    text = output_of(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import example")
    for shown in ("sticky:margin=1000", "order=ageing", "estimator=prompt-share"):
        assert shown in text


def test_the_second_example_uses_one_of_each_other_kind(tmp_path: Path):
    _, block, _, _ = PYTHON.findall(POLICIES)
    (tmp_path / "example.py").write_text(block)
    text = output_of(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import example")
    for shown in ("block:remaining=twice-over", "moves", "rejected by admission", "scale-ups"):
        assert shown in text


def test_the_checkpoint_by_hand_is_written_and_compared(tmp_path: Path):
    _, _, block, _ = PYTHON.findall(POLICIES)
    text = output_of(f"import os; os.chdir({str(tmp_path)!r})\n{block}")
    assert "learned:out/by-hand" in text
    assert (tmp_path / "out" / "by-hand.json").is_file()


def test_the_example_of_testing_passes_and_its_mistake_is_told_as_the_page_says(tmp_path: Path):
    *_, block = PYTHON.findall(POLICIES)
    (tmp_path / "right.py").write_text(block)
    (tmp_path / "wrong.py").write_text(block.replace("memory[0] += 1", "memory[1] += 1"))
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    assert output_of(f"{path}import right") == ""
    told = output_of(f"{path}\ntry: import wrong\nexcept AssertionError as error: print(error)")
    said = POLICIES.split("With `memory[1]` for `memory[0]`:\n\n")[1].split(", ...\n")[0]
    lines = [line.strip() for line in said.splitlines()]
    pairs = zip(told.splitlines(), lines, strict=True)
    assert [line.strip()[: len(start)] for line, start in pairs] == lines


def test_the_page_on_systems_names_every_one_of_the_table_and_its_texts_are_understood():
    assert not [
        name
        for name in SYSTEMS
        if f"`{name.replace('driftsched', '')}`" not in PAGE and f"`{name}`" not in PAGE
    ]
    texts = re.findall(r"^\| `([\w-]+:[^`]+)` \|", PAGE, re.MULTILINE)
    assert len(texts) == 8
    for text in texts:
        assert find_system(text).name == text


def test_the_page_on_policies_names_every_accessor():
    views = import_module("servegym.simulator.views")
    accessors = [
        name
        for name, value in vars(views).items()
        if getattr(value, "__module__", "") == views.__name__ and not name.startswith("_")
    ]
    assert "held_tokens" in accessors
    ours = {"checked", "counted", "measured", "observed"}  # what accessors are made of
    assert not [name for name in {*accessors} - ours if f"`{name}(" not in POLICIES]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_parses(line: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    words = shlex.split(line)
    assert words[1] in COMMANDS
    if "--check" in words:
        words[words.index("--systems") + 1] = "random,n-tier"
    if ("--out" in words or "--systems" in words) and "--trace" not in words:
        words += ["--seeds", "2", "--requests", "100"]
        if "--out" in words:
            words[words.index("--out") + 1] = str(tmp_path)
    if "--trace" in words:  # the file is not there, and nothing else is wrong
        assert main(words[1:]) == 2
        assert "No such file" in capsys.readouterr().err
    elif "--help" in words:
        with pytest.raises(SystemExit):
            main(words[1:])
    else:
        assert main(words[1:]) == 0
