"""ServeGen's client archives: read as literals, weighted by requests, checked against the real one."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from servegym.traces import Workload, workload
from servegym.traces.arrivals import Clients
from servegym.traces.demand.tenants import TenantLengths
from servegym.traces.fit import main
from servegym.traces.servegen import (
    INPUT,
    OUTPUT,
    histogram_quantiles,
    is_servegen,
    mean_tokens,
    merged_histogram,
    read_clients,
)

WINDOWS = (
    "0,0.1,1.0,Gamma,1.0,10\n600,0.3,2.0,Weibull,0.6,2\n21600,0,0,,0,0\n22200,0.2,1,Gamma,2,1\n"
)
SILENT = "0,0,0,,0,0\n600,0,0,,0,0\n21600,0,0,,0,0\n22200,0,0,,0,0\n"


def dataset(first: dict, second: dict) -> str:
    """Two periods of 6 h with these inputs; outputs are always 4 tokens."""
    periods = {"0": first, "21600": second}
    fields = {k: {INPUT: str(v), OUTPUT: "{4: 1.0}"} for k, v in periods.items()}
    return json.dumps(fields)


def archive(path: Path, members: dict[str, str]) -> Path:
    """Pack texts as a tar.gz."""
    with tarfile.open(path, "w:gz") as packed:
        for name, text in members.items():
            info = tarfile.TarInfo(f"reason/{name}")
            info.size = len(text.encode())
            packed.addfile(info, io.BytesIO(text.encode()))
    return path


def two_clients(tmp_path: Path) -> Path:
    """Client 10 sends, client 2 does not."""
    members = {
        "chunk-10-trace.csv": WINDOWS,
        "chunk-10-dataset.json": dataset({10: 0.5, 30: 0.5}, {90: 1.0}),
        "chunk-2-trace.csv": SILENT,
        "chunk-2-dataset.json": dataset({}, {}),
    }
    return archive(tmp_path / "model.tar.gz", members)


def test_periods_are_weighted_by_their_requests(tmp_path: Path):
    (client,) = read_clients(two_clients(tmp_path))
    assert client.name == "client-10" and client.families == "GW-G"
    assert client.rates == (0.1, 0.3, 0.0, 0.2) and client.shapes == (1.0, 0.6, 0.0, 2.0)
    # Rates .1 + .3 in the first period, .2 in the second: 10 and 30 weigh .2 each, 90 weighs .2.
    assert client.histograms[INPUT] == pytest.approx({10: 0.2, 30: 0.2, 90: 0.2})
    assert mean_tokens([client], INPUT) == pytest.approx(130 / 3, abs=1e-4)
    assert merged_histogram([client, client], OUTPUT) == pytest.approx({4: 1.2})


def test_quantiles_of_a_histogram_by_hand():
    histogram = {5: 1.0, 7: 2.0, 9: 1.0}
    assert histogram_quantiles(histogram, (0.0, 0.25, 0.26, 0.75, 0.76, 1.0)) == (5, 5, 7, 7, 9, 9)


def test_command_fits_an_archive(tmp_path: Path):
    about = ["--source", "made", "--licence", "none", "--citation", "none"]
    out = tmp_path / "mine.json"
    main([str(two_clients(tmp_path)), "--name", "mine", "--out", str(out), *about])
    model = Workload.from_json(out.read_text())
    # .6 a second in windows of 600 s: 360 requests over 2,400 s.
    assert (model.n_rows, model.recorded_rate_per_s) == (360, 0.15)
    assert isinstance(model.demand, TenantLengths) and model.demand.shares == (1.0,)


def test_lengths_are_never_evaluated(tmp_path: Path):
    members = {
        "chunk-0-trace.csv": WINDOWS,
        "chunk-0-dataset.json": json.dumps({"0": {INPUT: "exit(1)", OUTPUT: "{4: 1.0}"}}),
    }
    with pytest.raises(ValueError, match="malformed node"):
        read_clients(archive(tmp_path / "bad.tar.gz", members))


def test_half_a_client_and_unknown_gaps_are_named(tmp_path: Path):
    half = archive(tmp_path / "half.tar.gz", {"chunk-3-trace.csv": WINDOWS})
    with pytest.raises(ValueError, match=r"half.tar.gz: client 3 has only trace.csv"):
        read_clients(half)
    members = {
        "chunk-0-trace.csv": WINDOWS.replace("Weibull", "Pareto"),
        "chunk-0-dataset.json": dataset({1: 1.0}, {1: 1.0}),
    }
    with pytest.raises(ValueError, match="client 0: gaps are 'Pareto'; known: Gamma, Weibull"):
        read_clients(archive(tmp_path / "pareto.tar.gz", members))


def test_archives_are_told_by_their_members(tmp_path: Path):
    assert is_servegen(two_clients(tmp_path))
    assert not is_servegen(archive(tmp_path / "other.tar.gz", {"a.csv": "1"}))
    (tmp_path / "plain.csv").write_text("a,b\n1,2\n")
    assert not is_servegen(tmp_path / "plain.csv")


@pytest.mark.data
def test_real_archive_has_the_published_figures(data_dir: Path):
    clients = read_clients(data_dir / "traces/servegen/reason_deepseek-r1.tar.gz")
    sent = np.sort([sum(client.rates) for client in clients])[::-1] / 144
    assert len(clients) == 73 and sent.sum() == pytest.approx(16.0, abs=0.05)
    shares = np.cumsum(sent) / sent.sum()
    assert shares[[0, 2, 9]] == pytest.approx([0.29, 0.43, 0.68], abs=0.005)
    assert mean_tokens(clients, INPUT) == pytest.approx(1_268.2, abs=0.05)
    assert mean_tokens(clients, OUTPUT) == pytest.approx(1_527.4, abs=0.05)
    families = "".join(client.families for client in clients)
    assert (families.count("G"), families.count("W")) == (2_589, 522)
    # The levels of the whole mixture that were measured: P1, P5, P25, P50, P75, P90, P99.
    levels = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.99)
    inputs = histogram_quantiles(merged_histogram(clients, INPUT), levels)
    assert inputs == (9, 13, 41, 208, 482, 2_092, 23_423)


@pytest.mark.data
def test_shipped_model_keeps_every_client(data_dir: Path):
    model = workload("deepseek-r1")
    clients = read_clients(data_dir / "traces/servegen/reason_deepseek-r1.tar.gz")
    assert isinstance(model.arrivals, Clients)
    np.testing.assert_allclose(model.arrivals.rates, [c.rates for c in clients], rtol=5e-4)
    assert model.arrivals.families == tuple(client.families for client in clients)
