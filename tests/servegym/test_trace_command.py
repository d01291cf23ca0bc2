"""`servegym trace`: figures, files and pictures of a request log, and one line for every mistake."""

import json
from pathlib import Path

import numpy as np
import pytest

from servegym.__main__ import main
from servegym.traces import Labels, Trace, Workload, load

Capture = pytest.CaptureFixture[str]
ACTIONS = ("describe", "convert", "fit", "plot")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A plain CSV of 200 requests in batches of two, with tenants."""
    k = np.arange(200)
    trace = Trace(k // 2, k + 50, k % 7 + 1, tenant=Labels.of(f"t{r % 3}" for r in k))
    trace.to_frame().to_csv(tmp_path / "log.csv", index=False)
    return tmp_path / "log.csv"


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """A file of lengths alone."""
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n" + "50,6\n70,8\n" * 50)
    return path


@pytest.mark.parametrize("words", [["--help"], *([action, "--help"] for action in ACTIONS)])
def test_the_command_and_every_action_explain_themselves(words: list[str], capsys: Capture):
    with pytest.raises(SystemExit) as stop:
        main(["trace", *words])
    assert stop.value.code == 0
    assert "examples:\n  servegym trace " in capsys.readouterr().out


def test_describe_prints_figures_on_stdout_and_what_was_read_on_stderr(log: Path, capsys: Capture):
    assert main(["trace", "describe", str(log)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("log (plain trace, log.csv)\n200 requests over 99.0 s")
    assert "tenant: t0 33.5 %" in out
    assert err == "log.csv (plain trace): 200 rows read, 200 kept, dropped: none\n"


def test_describe_json_is_the_traces_own_description(log: Path, capsys: Capture):
    words = ["--json", "--start-s", "10", "--end-s", "20", "--max-rows", "150"]
    assert main(["trace", "describe", str(log), *words]) == 0
    expected = load(log, start_s=10.0, end_s=20.0, max_rows=150).describe()
    assert json.loads(capsys.readouterr().out) == expected
    assert expected["requests"] == 20


def test_convert_keeps_every_request_in_parquet_and_csv(log: Path, tmp_path: Path, capsys: Capture):
    for name in ("out.parquet", "out.csv"):
        out = tmp_path / name
        assert main(["trace", "convert", str(log), "--out", str(out), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["wrote"], told["requests"]) == (str(out), 200)
        assert load(out).workload_hash == told["workload_hash"] == load(log).workload_hash


def test_convert_spreads_batches_and_sorts(log: Path, tmp_path: Path, capsys: Capture):
    lines = log.read_text().splitlines()
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    out = tmp_path / "out.parquet"
    words = ["trace", "convert", str(mixed), "--out", str(out)]
    assert main(words) == 2
    assert "sort=True sorts by arrival (row 4 of mixed.csv)" in capsys.readouterr().err
    assert main([*words, "--sort", "--spread-s", "1", "--seed", "4"]) == 0
    trace = load(out)
    assert len(np.unique(trace.arrival_s)) == 200
    assert trace.notes[-1] == "equal times spread over 1 s, seed 4"


def test_lengths_alone_need_a_rate(lengths: Path, tmp_path: Path, capsys: Capture):
    words = ["trace", "convert", str(lengths), "--out", str(tmp_path / "out.csv")]
    assert main(words) == 2
    assert "no arrival column" in capsys.readouterr().err
    assert main([*words, "--rate", "5", "--seed", "2", "--end-s", "6"]) == 0
    trace = load(tmp_path / "out.csv")
    assert 10 < len(trace) < 60 and trace.arrival_s[-1] < 6.0


def test_fit_writes_a_workload_that_reads_back(
    log: Path, lengths: Path, tmp_path: Path, capsys: Capture
):
    out = tmp_path / "mine.json"
    for file, n in ((log, 200), (lengths, 100)):
        assert main(["trace", "fit", str(file), "--name", "mine", "--out", str(out), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "wrote": str(out),
            "name": "mine",
            "requests": n,
        }
        model = Workload.from_json(out.read_text())
        assert (model.name, model.n_rows, model.licence) == ("mine", n, "not stated")
        assert (model.recorded_rate_per_s is None) == (file == lengths)


def test_a_fitted_workload_is_compared_by_the_path_that_fit_names(
    log: Path, tmp_path: Path, capsys: Capture
):
    out = tmp_path / "mine.json"
    assert main(["trace", "fit", str(log), "--name", "mine", "--out", str(out)]) == 0
    wrote, use = capsys.readouterr().out.splitlines()
    assert wrote == f"wrote {out}: 200 requests"
    told, _, command = use.partition(": servegym ")
    assert told == "use it" and f"--workload {out} " in command
    assert main([*command.split(), "--seeds", "2", "--requests", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifest"]["workload"] == "mine"
    for command in ("simulate", "compare --systems random"):
        words = [*command.split(), "--workload", str(log.with_suffix(".json")), "--load", "0.9"]
        assert main(words) == 2
        assert "No such file or directory" in capsys.readouterr().err.splitlines()[-1]


def test_columns_that_no_format_has_are_one_line(tmp_path: Path, capsys: Capture):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for words in (["trace", "describe"], ["simulate", "--trace"]):
        assert main([*words, str(tmp_path / "x.csv")]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "Azure LLM inference trace: missing TIMESTAMP" in line
        assert "GeneratedTokens; BurstGPT: missing Timestamp" in line


def test_plot_draws_a_picture(log: Path, tmp_path: Path, capsys: Capture):
    out = tmp_path / "log.png"
    assert main(["trace", "plot", str(log), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: 200 requests\n"
    assert out.read_bytes().startswith(b"\x89PNG")


MISTAKES = {
    "": "servegym trace: an action is missing; known: describe, convert, fit, plot",
    "descrbe LOG": "unknown action 'descrbe'; did you mean 'describe'?",
    "describe": "missing from servegym trace describe: FILE",
    "describe /no/log.csv": "No such file or directory: /no/log.csv",
    "describe LOG --jsn": "unrecognized options: --jsn",
    "describe LOG --start-s 5 --end-s 2": "window = [5.0, 2.0)",
    "describe LOG --rate 5": "has arrivals (arrival_s): load it without a rate",
    "describe LOG --spread-s 0": "interval_s = 0.0; must be finite and > 0",
    "convert LOG": "--out is missing",
    "convert LOG --out x.txt": "--out x.txt must end in .parquet or .csv",
    "plot LOG --out x.txt": "--out x.txt must end in .png, .svg or .pdf",
    "plot LOG --max-rows 0 --out x.png": "has no requests: nothing to plot",
    "fit LOG": "--name is missing",
    "fit LOG --name x --out x.txt": "--out x.txt must end in .json",
    "fit /no/log.csv --name x --out /no/x.json": "No such file or directory: /no/log.csv",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_exit_code_2_and_named_on_the_last_line(
    words: str, log: Path, capsys: Capture
):
    assert main(["trace", *words.replace("LOG", str(log)).split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert MISTAKES[words] in err.splitlines()[-1]
