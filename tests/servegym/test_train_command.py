"""`servegym train`: the whole command, small, and what is wrong in one line."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from servegym.__main__ import main
from servegym.baselines.learned import read_checkpoint, write_checkpoint
from servegym.commands import train
from servegym.commands.train import ALGORITHMS, OF_SERVE, SUMMARIES, reserved

SMALL = ["--generations", "1", "--candidates", "4", "--elite", "2", "--requests", "200"]
SMALL += ["--burst-requests", "0", "--instances", "2", "--workloads", "azure-conv"]
SMALL += ["--lengths", "predicted", "--workers", "1"]


def test_a_policy_is_trained_and_compared(tmp_path, capsys):
    file = str(tmp_path / "mine")
    assert (
        main(["train", "dispatch", "--objective", "p99-e2e", "--out", file, *SMALL, "--json"]) == 0
    )
    printed = capsys.readouterr()
    card = json.loads(printed.out)
    assert card["file"] == f"{file}.safetensors"
    assert card["objective"] == "p99-e2e"
    assert card["command"].startswith("servegym train dispatch --objective p99-e2e --out")
    assert "1/1 generations" in printed.err
    systems = f"learned:{file},least-requests"
    arguments = ["compare", "--systems", systems, "--instances", "2", "--load", ".9"]
    assert main([*arguments, "--seeds", "1", "--requests", "200"]) == 0
    assert "learned" in capsys.readouterr().out


PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["training", "serve", "learned"])
def test_commands_of_the_pages_are_taken(page, tmp_path, monkeypatch):
    """Whole commands, in blocks or in backticks, are parsed and checked; nothing is trained."""
    text = (PAGES / f"{page}.md").read_text().replace("\\\n", " ")
    commands = re.findall(
        r"^    (servegym train .*)$|`(servegym train [^`]*--out[^`]*)`", text, re.M
    )
    assert commands
    trained = []
    for module in {*ALGORITHMS.values(), *OF_SERVE.values()}:
        monkeypatch.setattr(
            train.imported(module),
            "train",
            lambda options, _: trained.append(options) or {"file": "x"},
        )
    monkeypatch.chdir(tmp_path)
    teacher = read_checkpoint("dispatch-mean-e2e")
    write_checkpoint(tmp_path / "out/mine", teacher.tensors, teacher.card)
    for block, inline in commands:
        assert main(shlex.split(block or inline)[1:]) == 0
    assert len(trained) == len(commands)


@pytest.mark.parametrize(
    "decision, algorithm", [("dispatch", name) for name in ALGORITHMS] + [("serve", "cem")]
)
def test_what_is_proposed_afterwards_plays_that_decision(
    decision, algorithm, tmp_path, monkeypatch, capsys
):
    """The proposal is a whole command, with the clusters and rivals of the decision; here it is played, shorter."""
    shipped = {"dispatch": "dispatch-mean-e2e", "serve": "serve-goodput"}[decision]
    policy = read_checkpoint(shipped)
    file = write_checkpoint(tmp_path / "it's mine", policy.tensors, policy.card)
    modules = OF_SERVE if decision == "serve" else ALGORITHMS
    monkeypatch.setattr(train.imported(modules[algorithm]), "train", lambda *_: {"file": str(file)})
    assert main(["train", decision, "--algo", algorithm, "--out", str(tmp_path / "x")]) == 0
    proposed = capsys.readouterr().err.partition("play it with: servegym ")[2]
    words = shlex.split(proposed)
    if decision == "serve":
        wanted = shlex.split(SERVE)
        assert [w for w in words if "learned:" not in w] == wanted
    assert main([*words, "--seeds", "1", "--requests", "100"]) == 0
    assert f"learned:{file}" in capsys.readouterr().out


SERVE = (
    "compare --workload azure-conv --arrivals gamma:cv=3 --load .95 --scenario tight --instances 4 --tiers 4 "
    "--tier-mix enterprise --max-local-waiting 0 --systems"
)  # as docs/serve.md has it


def test_only_the_file_is_printed(tmp_path, capsys):
    assert main(["train", "dispatch", "--out", str(tmp_path / "a"), *SMALL, "--algo", "cem"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a'}.safetensors\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dispatch", "--algo", "cme"], "unknown algorithm 'cme'; did you mean 'cem'"),
        (["dispatch", "--algo"], "--algo is without a name"),
        (["dispach"], "unknown decision 'dispach' of cem; did you mean 'dispatch'"),
        (["--algo", "ppo", "dispatch"], "write servegym train DECISION --algo ..."),
        (["dispatch", "--instances", "4", "4"], "instances = [4, 4]; must name some, each once"),
        (["dispatch", "--objective", "ttft-sol"], "did you mean 'ttft-slo'"),
        (["dispatch", "--objectiv", "ttft-slo"], "--objective"),
        (["dispatch", "--generations", "many"], "generations"),
        (["dispatch", "--workloads", "azure-con"], "azure-conv"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


NO_TORCH = """
import sys
sys.modules["torch"] = None
from servegym.__main__ import main
sys.exit(main(["train", "dispatch", "--algo", sys.argv[1]]))
"""


@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo", "clone"])
def test_missing_extra_is_one_line_that_names_it(algorithm: str):
    words = [sys.executable, "-c", NO_TORCH, algorithm]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert "pip install 'servegym[rl]'" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["file/mine", "/proc/mine", "."])
def test_place_that_cannot_be_written_is_told_before_the_work(name: str, tmp_path: Path, capsys):
    (tmp_path / "file").write_text("")
    out = name if name == "." else str(tmp_path / name)
    assert main(["train", "dispatch", "--out", out, *SMALL]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "generations" not in error


def test_two_trainings_do_not_write_the_same_files(tmp_path: Path, capsys):
    out = tmp_path / "mine"
    with reserved(out):
        assert main(["train", "dispatch", "--out", f"{out}.safetensors", *SMALL]) == 2
    assert f"another process trains {out}.safetensors" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_home_folder_is_that_of_all_files(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["train", "dispatch", "--out=~/mine", *SMALL]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine.safetensors",
        "mine.json",
        "mine.state.json",
    }


def test_card_says_how_many_generations_there_were(tmp_path: Path):
    out = str(tmp_path / "mine")
    small = ["train", "dispatch", "--out", out, *SMALL]
    assert main([*small, "--generations", "2"]) == 0
    assert main([*small, "--resume"]) == 0  # asks for fewer
    assert json.loads(Path(f"{out}.json").read_text())["trained_on"]["generations"] == 2


def test_help_names_the_algorithms_and_the_options(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in (*ALGORITHMS, "dispatch", "serve"))
    with pytest.raises(SystemExit):
        main(["train", "dispatch", "--help"])
    assert "--objective" in capsys.readouterr().out


def test_every_algorithm_has_a_summary():
    assert ALGORITHMS.keys() == SUMMARIES.keys()
