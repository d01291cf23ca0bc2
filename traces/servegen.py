"""ServeGen client data: a workload with tenants from the archive of one model.

chunk-N-trace.csv has a client's windows of 600 s: start, rate, CV, family of the gaps, shape, scale
(the scale is left out: gaps are rescaled to the rate). chunk-N-dataset.json has its lengths every
6 h as texts {tokens: probability}, read as literals. Clients' lengths are weighted by requests.
Source: github.com/alibaba/ServeGen (Xiang et al., arXiv 2505.09999). Left out: reasoning shares.
"""

import ast
import csv
import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.clients import GAMMA, SILENT, WEIBULL, Clients
from servegym.traces.demand.tenants import TenantLengths

MEMBER = re.compile(r"(?:.*/)?chunk-(\d+)-(trace\.csv|dataset\.json)")
WINDOW_S = 600.0
FAMILIES = {"Gamma": GAMMA, "Weibull": WEIBULL, "": SILENT}
LEVELS = (
    *(0.0, 0.001, 0.01, 0.02, *np.round(np.arange(1, 20) * 0.05, 2).tolist()),
    *(0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 1.0),
)
INPUT, OUTPUT = "input_tokens", "output_tokens"

Histogram = dict[int, float]


@dataclass(frozen=True)
class ClientData:
    """One client. rates (req/s), families, shapes: by window. histograms: by field, of all its
    requests; empty when it sent none."""

    name: str
    rates: tuple[float, ...]
    families: str
    shapes: tuple[float, ...]
    histograms: dict[str, Histogram]


def is_servegen(path: Path) -> bool:
    """Tell an archive of client data by its members."""
    if not tarfile.is_tarfile(path):
        return False
    with tarfile.open(path) as archive:
        return any(MEMBER.fullmatch(name) for name in archive.getnames())


def read_clients(path: Path) -> list[ClientData]:
    """Return the clients that sent anything, in order of number; ValueError for half a client."""
    texts: dict[int, dict[str, str]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and (matched := MEMBER.fullmatch(member.name)):
                text = io.TextIOWrapper(file, encoding="utf-8").read()
                texts.setdefault(int(matched[1]), {})[matched[2]] = text
    for number, parts in texts.items():
        if len(parts) != 2:
            raise ValueError(f"{path.name}: client {number} has only {', '.join(parts)}")
    clients = [read_client(number, **unpack(texts[number])) for number in sorted(texts)]
    return [client for client in clients if any(client.rates)]


def unpack(parts: dict[str, str]) -> dict[str, str]:
    """Return a client's two texts by parameter name."""
    return {"windows": parts["trace.csv"], "dataset": parts["dataset.json"]}


def read_client(number: int, windows: str, dataset: str) -> ClientData:
    """Return one client; ValueError names a family of gaps that is not known."""
    rows = list(csv.reader(windows.splitlines()))
    starts = [float(row[0]) for row in rows]
    rates = [float(row[1]) for row in rows]
    for row in rows:
        if row[3] not in FAMILIES:
            raise ValueError(f"client {number}: gaps are {row[3]!r}; known: Gamma, Weibull")
    families = "".join(FAMILIES[row[3]] for row in rows)
    shapes = [float(row[4] or 0.0) for row in rows]
    histograms = weighted(json.loads(dataset), np.array(starts), np.array(rates))
    return ClientData(f"client-{number}", tuple(rates), families, tuple(shapes), histograms)


def weighted(
    dataset: dict[str, dict[str, str]], starts: NDArray[np.float64], rates: NDArray[np.float64]
) -> dict[str, Histogram]:
    """Return the histograms of the whole recording, each period weighted by its requests."""
    periods = sorted(dataset, key=float)
    edges = [*(float(period) for period in periods), np.inf]
    merged: dict[str, Histogram] = {INPUT: {}, OUTPUT: {}}
    for k, period in enumerate(periods):
        weight = rates[(starts >= edges[k]) & (starts < edges[k + 1])].sum()
        for field, into in merged.items():
            for tokens, share in ast.literal_eval(dataset[period][field]).items():
                into[tokens] = into.get(tokens, 0.0) + weight * share
    return {field: {t: w for t, w in into.items() if w > 0.0} for field, into in merged.items()}


def histogram_quantiles(histogram: Histogram, levels: tuple[float, ...]) -> tuple[int, ...]:
    """Return the least token count whose cumulative share reaches each level."""
    tokens = np.array(sorted(histogram))
    cumulative = np.cumsum([histogram[t] for t in tokens.tolist()])
    found = np.searchsorted(cumulative / cumulative[-1], np.array(levels) - 1e-12)
    return tuple(tokens[np.minimum(found, len(tokens) - 1)].tolist())


def merged_histogram(clients: list[ClientData], field: str) -> Histogram:
    """Return the histogram of a field over the requests of all clients."""
    merged: Histogram = {}
    for client in clients:
        for tokens, weight in client.histograms[field].items():
            merged[tokens] = merged.get(tokens, 0.0) + weight
    return merged


def mean_tokens(clients: list[ClientData], field: str) -> float:
    """Return the request-weighted mean of a field over all clients."""
    merged = merged_histogram(clients, field)
    return round(sum(t * w for t, w in merged.items()) / sum(merged.values()), 4)


def to_lengths(clients: list[ClientData]) -> TenantLengths:
    """Return the clients' lengths as quantile tables, and their shares of all requests."""
    sent = np.array([sum(client.rates) for client in clients])
    prompts, outputs = (
        tuple(histogram_quantiles(client.histograms[field], LEVELS) for client in clients)
        for field in (INPUT, OUTPUT)
    )
    return TenantLengths(
        names=tuple(client.name for client in clients),
        shares=tuple(np.round(sent / sent.sum(), 8).tolist()),
        levels=LEVELS,
        prompt_quantiles=prompts,
        output_quantiles=outputs,
        mean_prompt_tokens=mean_tokens(clients, INPUT),
        mean_output_tokens=mean_tokens(clients, OUTPUT),
    )


def to_arrivals(clients: list[ClientData]) -> Clients:
    """Return the clients' arrivals, rates and shapes to four significant digits."""
    return Clients(
        window_s=WINDOW_S,
        names=tuple(client.name for client in clients),
        families=tuple(client.families for client in clients),
        rates=tuple(tuple(float(f"{r:.4g}") for r in client.rates) for client in clients),
        shapes=tuple(tuple(float(f"{s:.4g}") for s in client.shapes) for client in clients),
    )
