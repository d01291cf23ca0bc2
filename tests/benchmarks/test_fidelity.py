"""The fidelity bench runs on the recorded runs and meets its targets; without them it says what is missing."""

import pytest

from servegym.benchmarks import fidelity


@pytest.mark.data
def test_every_fidelity_row_is_met(data_dir, monkeypatch):
    monkeypatch.setenv("SERVEGYM_DATA", str(data_dir))
    rows = fidelity.run()
    judged = [row for row in rows if row.met is not None]
    assert len(judged) == 10
    assert all(row.met for row in judged), [row for row in judged if not row.met]


@pytest.mark.data
def test_the_untuned_run_has_the_errors_of_the_plain_simulator(data_dir):
    """DESIGN 3.2: a plain simulator of these rules has 1.97 % E2E MAPE and -0.9 % mean TPOT on the RTX 4090 run."""
    rows = {row.name: row.value for row in fidelity.rtx_4090_rows(data_dir / "reference")}
    assert rows["vLLM RTX 4090: E2E MAPE"] == pytest.approx(1.97, abs=0.005)
    assert rows["vLLM RTX 4090: mean TPOT"] == pytest.approx(0.86, abs=0.005)


def test_a_folder_without_recorded_runs_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVEGYM_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"no recorded runs in {tmp_path}"):
        fidelity.run()
