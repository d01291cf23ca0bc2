"""`servegym train`: the whole command, small, and what is wrong in one line."""

import json
import sys

import pytest

from servegym.__main__ import main
from servegym.commands.train import ALGORITHMS, SUMMARIES

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


def test_only_the_file_is_printed(tmp_path, capsys):
    assert main(["train", "dispatch", "--out", str(tmp_path / "a"), *SMALL, "--algo", "cem"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a'}.safetensors\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dispatch", "--algo", "cme"], "unknown algorithm 'cme'; did you mean 'cem'"),
        (["dispatch", "--algo"], "--algo is without a name"),
        (["dispach"], "unknown decision 'dispach' of cem; did you mean 'dispatch'"),
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


def test_without_the_extra_it_is_named(monkeypatch, capsys):
    for name in ("servegym.agents.ppo", "servegym.agents.export"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    assert main(["train", "dispatch", "--algo", "ppo"]) == 1
    error = capsys.readouterr().err
    assert "torch" in error and error.endswith("pip install 'servegym[rl]'\n")


def test_help_names_the_algorithms_and_the_options(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in (*ALGORITHMS, "dispatch", "serve"))
    with pytest.raises(SystemExit):
        main(["train", "dispatch", "--help"])
    assert "--objective" in capsys.readouterr().out


def test_every_algorithm_has_a_summary():
    assert ALGORITHMS.keys() == SUMMARIES.keys()
