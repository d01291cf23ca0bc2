"""The Python of the page on environments runs as it stands, and what it says of features and arguments is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from servegym.envs.docstring import TABLES, feature_table
from servegym.envs.registration import env_ids

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text(
    encoding="utf-8"
)
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def block_with(text: str) -> str:
    """Return the one block of Python with that text."""
    [found] = [block for block in BLOCKS if text in block]
    return found


def output_of(program: str, folder: Path) -> str:
    """Return what a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("text", ["takers = ", "BaselinePolicy(", '"block"'])
def test_an_episode_is_played_and_its_figure_printed(text: str, tmp_path: Path):
    assert float(output_of(block_with(text), tmp_path)) > 0.0


def test_the_environments_that_need_arguments_are_made(tmp_path: Path):
    assert output_of(block_with("max_instances"), tmp_path) == ""


def test_many_at_once_have_a_row_each(tmp_path: Path):
    text = output_of(block_with("make_vec"), tmp_path)
    assert re.match(r"\(256, \d+\) \(256,\) \(256, 4\)\n", text)


@pytest.mark.parametrize("algorithm", [" PPO(", " MaskablePPO("])
def test_an_agent_trains(algorithm: str, tmp_path: Path):
    pytest.importorskip("sb3_contrib")
    program = block_with(algorithm).replace("1_000_000", "4_096")
    printed = output_of(f"{program}\nprint(model.num_timesteps)", tmp_path)
    assert int(printed.split()[-1]) >= 4_096


def test_the_search_beats_least_requests_on_every_seed(tmp_path: Path):
    program = block_with("def look_ahead").replace("range(10)", "range(2)")
    program += (
        "\nassert all(a < b for a, b in zip(searched, plain, strict=True)), (searched, plain)\n"
    )
    assert output_of(program, tmp_path)


def test_the_picture_is_the_one_that_is_printed(tmp_path: Path):
    shown = PAGE.split("print(env.render())\n```\n\n")[1].split("\n\n`render_mode")[0]
    wanted = [line.strip() for line in shown.splitlines() if line.strip()]
    drawn = output_of(block_with("env.render()"), tmp_path).splitlines()
    assert [line.strip() for line in drawn if line.strip()] == wanted


def test_the_page_has_every_id_and_every_feature():
    assert not [env_id for env_id in env_ids() if f"| `{env_id}` |" not in PAGE]
    assert not [part for part, (_, table) in TABLES.items() if feature_table(table) not in PAGE]


def test_an_environment_of_ones_own_is_checked(tmp_path: Path):
    assert output_of(block_with("check_env("), tmp_path) == ""
