"""The README's Python runs as it stands there, and its commands are understood."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from servegym.__main__ import COMMANDS, main

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMAND_LINES = [
    line.partition("#")[0].strip()
    for line in README.splitlines()
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


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_parses(line: str, capsys: pytest.CaptureFixture):
    words = shlex.split(line)
    assert words[1] in COMMANDS
    if "--trace" in words:  # the file is not there, and nothing else is wrong
        assert main(words[1:]) == 2
        assert "No such file" in capsys.readouterr().err
    elif "--help" in words:
        with pytest.raises(SystemExit):
            main(words[1:])
    else:
        assert main(words[1:]) == 0
