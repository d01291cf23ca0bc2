"""`servegym calibrate`: tables, a file that other commands take, and one-line errors."""

import json
from pathlib import Path

import pytest
from synthetic_iterations import draw, write_csv

from servegym.__main__ import main
from servegym.commands.calibrate import stem

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def steps(tmp_path: Path) -> str:
    """A CSV of 300 made iterations, 3 % noise."""
    return str(write_csv(tmp_path / "steps.v2.csv", draw(n=300, noise=0.03)))


def fails_with(capsys: Capture, *words: str) -> str:
    """Return the one line on stderr of a command that must fail with exit code 2."""
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    return err


def test_help_has_columns_and_examples(capsys: Capture):
    with pytest.raises(SystemExit) as stop:
        main(["calibrate", "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "examples:\n  servegym calibrate steps.csv\n" in text
    assert "None" not in text and "default:" not in text
    for column in ("prefill_tokens", "decode_seqs", "kv_tokens", "prefill_attn", "t_ms"):
        assert column in text
    main(["--help"])
    assert "  calibrate " in capsys.readouterr().out


def test_table_shows_errors_by_kind_coefficients_and_what_is_not_known(steps: str, capsys: Capture):
    assert main(["calibrate", steps]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "measured/steps.v2/tp1: fitted to 300 iterations"
    table = {
        line.split()[0]: line.split()[1:] for line in lines[2:] if line and line[:5] != "note:"
    }
    assert [table[kind][0] for kind in ("decode", "prefill", "mixed", "all")] == ["100"] * 3 + [
        "300"
    ]
    assert 1.5 < float(table["all"][1]) < 3.5 < float(table["all"][2])
    assert float(table["c0_ms"][0]) == pytest.approx(7.0, rel=0.2)
    notes = [line for line in lines if line.startswith("note: ")]
    assert "prefill and" in notes[0] and "a run that goes beyond says so" in notes[0]
    assert notes[-1] == "note: no KV blocks given, so every run needs --kv-blocks"


def test_decodes_alone_name_what_they_do_not_determine(tmp_path: Path, capsys: Capture):
    path = write_csv(tmp_path / "steps.csv", draw(n=60, kinds=("decode",)))
    assert main(["calibrate", str(path), "--kv-blocks", "900"]) == 0
    out = capsys.readouterr().out
    assert "note: these iterations do not determine c_decode_step_ms, c_seq_ms, " in out
    assert "prefill                0        -        -        -" in out
    assert "no KV blocks" not in out


def test_json_on_stdout_is_the_profiles_file(steps: str, tmp_path: Path, capsys: Capture):
    out = tmp_path / "own.json"
    words = [
        "calibrate",
        steps,
        "--name",
        "h100/llama/tp2",
        "--kv-blocks",
        "900",
        "--out",
        str(out),
    ]
    assert main([*words, "--seed", "5", "--json"]) == 0
    printed, said = capsys.readouterr()
    assert said == f"wrote {out}\n"
    document = json.loads(printed)
    assert document == json.loads(out.read_text())
    assert (document["device"], document["model"], document["tensor_parallel"]) == (
        "h100",
        "llama",
        2,
    )
    assert document["kv_blocks_default"] == 900
    assert document["fit"]["seed"] == 5
    everything = document["fit"]["held_out"][-1]
    assert everything["kind"] == "all" and everything["mape_pct"] == document["fit_mape_pct"]


def test_other_commands_take_the_file(steps: str, tmp_path: Path, capsys: Capture):
    out = str(tmp_path / "own.json")
    main(["calibrate", steps, "--out", out])
    simulate = ["simulate", "--profile", out, "--requests", "200", "--rate", "5", "--json"]
    capsys.readouterr()
    assert "measured/steps.v2/tp1 has no default number of KV blocks" in fails_with(
        capsys, *simulate
    )
    assert main([*simulate, "--kv-blocks", "5000"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["finished"] == 200
    assert summary["config"]["profile"] == out


def test_mistakes_are_one_line_and_exit_code_2(steps: str, tmp_path: Path, capsys: Capture):
    few = str(write_csv(tmp_path / "few.csv", draw(n=9)))
    bare = str(write_csv(tmp_path / "bare.csv", draw(n=9), ("t_ms", "decode_seqs")))
    for words, message in {
        "": "servegym calibrate: missing",
        "/no/steps.csv": "servegym calibrate: No such file or directory: /no/steps.csv",
        few: "9 iterations of 9 different compositions; at least 20 are needed",
        bare: "bare.csv has no column decode_seqs, t_ms",
        f"{steps} --name h100": "name = 'h100'; must be device/model/tpN",
        f"{steps} --kv-blocks 0": "kv_blocks_default = 0; must be a whole number >= 1",
        f"{steps} --seed -1": "--seed -1; must be >= 0",
        f"{steps} --out {tmp_path}/own.txt": "the file of a profile must end in .json",
        f"{steps} --out /no/own.json": "No such file or directory: /no/own.json",
        f"{steps} --oot x": "did you mean --out?",
    }.items():
        assert message in fails_with(capsys, "calibrate", *words.split())


def test_default_name_is_the_files_without_its_suffixes():
    assert stem("a/h100_Llama-3.1-8B.csv.gz") == "h100_Llama-3.1-8B"
    assert stem(".csv") == "steps"


def test_list_profiles_says_what_to_choose_by(capsys: Capture):
    main(["list", "profiles"])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    h100 = lines["h100_sxm/Llama-3.1-8B/tp1"]
    assert "28,616 KV blocks, error  2.7 %, to 4,096 prefill, 400,000 KV tokens; aiconf" in h100
    estimates = [name for name, line in lines.items() if "DATASHEET ESTIMATE" in line]
    assert estimates == ["a10/Llama-2-7B/tp1", "l4/Qwen1.5-1.8B/tp1"]
    assert "range not recorded" in lines["rtx_4090/Llama-3.1-8B/tp1"]
