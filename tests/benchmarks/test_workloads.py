"""The workloads bench meets its targets on the real files, and each judged workload has a file."""

import pytest

from servegym.benchmarks import workloads
from servegym.benchmarks.targets import FITTED_LENGTHS, IOD_WINDOWS_S


@pytest.mark.data
def test_every_workload_row_is_met(data_dir, monkeypatch):
    monkeypatch.setenv("SERVEGYM_DATA", str(data_dir))
    rows = workloads.run()
    assert len(rows) == 2 * len(FITTED_LENGTHS) + 8
    assert all(row.met for row in rows), [row for row in rows if not row.met]


def test_every_judged_workload_has_a_file():
    assert set(FITTED_LENGTHS) == {*workloads.FILES, *workloads.CLIENTS}
    assert set(IOD_WINDOWS_S) <= set(workloads.FILES)


@pytest.mark.data
def test_a_wrong_model_misses_its_targets(monkeypatch, data_dir):
    """Another workload's numbers under the name of azure-conv are told apart."""
    real = workloads.generate
    monkeypatch.setattr(workloads, "generate", lambda name, *a, **k: real("azure-code", *a, **k))
    monkeypatch.setattr(workloads, "FILES", {"azure-conv": workloads.FILES["azure-conv"]})
    monkeypatch.setattr(workloads, "CLIENTS", {})
    monkeypatch.setattr(workloads, "IOD_WINDOWS_S", {"azure-conv": (1.0, 10.0, 60.0)})
    folder = data_dir / "traces"
    rows = [*workloads.length_rows(folder), *workloads.arrival_rows(folder)]
    assert [row.met for row in rows] == [False] * 5
