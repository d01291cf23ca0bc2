"""`servegym bench`: rows as a table and as JSON, and an exit code that says whether targets are met."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from servegym.__main__ import main
from servegym.benchmarks import fidelity
from servegym.benchmarks.rows import Row, is_all_met, to_text

ROWS = [
    Row("round-robin, 8 instances", 6_543_210.0, "requests/CPU-s", ">= 3,000,000", True),
    Row("RSS growth", 210.5, "B/request", 200, False),
    Row("requests", 100_000, ""),
    Row("not measured", None, "s", "<= 4", None),
]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that a stand-in for the speed bench returns."""
    found = list(ROWS)
    stand_in = ModuleType("servegym.benchmarks.speed")
    stand_in.__dict__["run"] = lambda: found
    monkeypatch.setitem(sys.modules, "servegym.benchmarks.speed", stand_in)
    return found


def test_rows_are_an_aligned_table_that_counts_missed_targets():
    lines = to_text(ROWS).splitlines()
    assert lines[1].split()[-5:] == ["6,543,210", "requests/CPU-s", ">=", "3,000,000", "yes"]
    assert lines[2].endswith("200  NO") and lines[4].split()[-1] == "-"
    assert lines[0].index("unit") == lines[1].index("requests/CPU-s") == lines[2].index("B/request")
    assert lines[-1] == "1 of 2 targets met"


def test_a_missed_target_is_exit_code_1(rows: list[Row], capsys: pytest.CaptureFixture):
    assert main(["bench", "speed"]) == 1
    assert "1 of 2 targets met" in capsys.readouterr().out
    del rows[1]
    assert main(["bench", "speed"]) == 0
    assert is_all_met(rows) and not is_all_met(ROWS)


def test_json_rows_have_the_five_fields(rows: list[Row], capsys: pytest.CaptureFixture):
    main(["bench", "speed", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document[1] == {
        "name": "RSS growth",
        "value": 210.5,
        "unit": "B/request",
        "target": 200,
        "met": False,
    }
    assert len(document) == len(rows)


def test_without_data_nobody_is_told_of_a_folder_they_did_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(fidelity, "__file__", str(tmp_path / "site" / "benchmarks" / "fidelity.py"))
    monkeypatch.delenv("SERVEGYM_DATA", raising=False)
    assert main(["bench", "fidelity"]) == 2
    wanted = "no recorded runs; give --data DIR or set SERVEGYM_DATA"
    assert capsys.readouterr().err == f"servegym bench: {wanted}\n"
