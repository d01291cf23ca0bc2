"""Fit a workload to real requests: empirical quantiles of lengths and an arrival process.

    python -m servegym.traces.fit FILE --name azure-conv

FILE is any trace that `load` reads, a file of lengths alone, or ServeGen's client archive. Refitting
a shipped workload keeps its source, licence and citation; a new one needs them as options. Quantiles
lie every 0.1 %, and more densely in the upper tail, where few requests carry much of the mean.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.demand.distributions import QuantileTable
from servegym.traces.demand.requests import Independent
from servegym.traces.fit_arrivals import fit_arrivals
from servegym.traces.lengths import load_lengths
from servegym.traces.load import NoArrivalsError, load
from servegym.traces.servegen import is_servegen, read_clients, to_arrivals, to_lengths
from servegym.traces.trace import Trace
from servegym.traces.validation import check_tokens
from servegym.traces.workload import Workload, workload, workload_names

EVEN_LEVELS = 1000
TAIL_LEVELS = 64
LEVEL_DIGITS = 6

Lengths = tuple[NDArray[np.int32], NDArray[np.int32]]


def fit(
    requests: Trace | tuple[ArrayLike, ArrayLike],
    name: str = "fitted",
    source: str = "",
    licence: str = "",
    citation: str = "",
    made_by: str = "",
) -> Workload:
    """Return the workload fitted to a trace, or to a pair of prompt and output lengths in tokens.

    Lengths are the data's own quantiles, independent of each other; rate and arrival process are
    fitted when there are times. Labels and tiers are not fitted. ValueError for no requests, or
    naming the first length that is not >= 1.
    """
    is_trace = isinstance(requests, Trace)
    pair = (requests.prompt_tokens, requests.output_tokens) if is_trace else requests
    prompts, outputs = (
        check_tokens("prompt_tokens", pair[0]),
        check_tokens("output_tokens", pair[1]),
    )
    if len(prompts) == 0 or len(prompts) != len(outputs):
        shown = f"{len(prompts)} prompt and {len(outputs)} output lengths"
        raise ValueError(f"{shown}; must be as many of each, and at least one")
    rate = requests.mean_rate_per_s if is_trace else None
    return Workload(
        name=name,
        source=source,
        licence=licence,
        citation=citation,
        n_rows=len(prompts),
        recorded_rate_per_s=None if rate is None else round(rate, 6),
        made_by=made_by,
        demand=Independent(quantile_table(prompts), quantile_table(outputs)),
        arrivals=fit_arrivals(requests.arrival_s) if is_trace and rate is not None else None,
    )


def fit_clients(path: Path, name: str) -> Workload:
    """Return the workload of ServeGen's clients: lengths and arrivals by tenant."""
    clients = read_clients(path)
    arrivals = to_arrivals(clients)
    rate = round(arrivals.rate_per_s, 6)
    n_rows = round(sum(sum(row) for row in arrivals.rates) * arrivals.window_s)
    return Workload(name, "", "", "", n_rows, rate, "", to_lengths(clients), arrivals)


def quantile_table(tokens: NDArray[np.int32]) -> QuantileTable:
    """Return the empirical quantiles of token counts, from the least to the greatest."""
    tail = 1.0 - np.geomspace(1.0 / EVEN_LEVELS, min(1e-3, 1.0 / len(tokens)), TAIL_LEVELS)
    even = np.arange(EVEN_LEVELS + 1) / EVEN_LEVELS
    levels = np.unique(np.round(np.concatenate([even, tail]), LEVEL_DIGITS))
    values = np.quantile(tokens, levels, method="inverted_cdf")
    kept = ~inside_a_run(values)
    return QuantileTable(
        tuple(levels[kept].tolist()),
        tuple(values[kept].astype(int).tolist()),
        round(float(tokens.mean()), 6),
    )


def inside_a_run(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mark points whose two neighbours have the same value: they add nothing to the table."""
    inside = np.zeros(len(values), dtype=bool)
    inside[1:-1] = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    return inside


def read_requests(path: str | Path) -> Trace | Lengths:
    """Return the trace in a file, or its lengths when it has no arrivals."""
    try:
        return load(path)
    except NoArrivalsError:
        trace = load_lengths(path, rate_per_s=1.0, seed=0)
        return trace.prompt_tokens, trace.output_tokens


def fit_file(options: argparse.Namespace) -> Workload:
    """Return the workload fitted to the file, with the options that change what is read."""
    if is_servegen(options.file):
        return fit_clients(options.file, options.name)
    requests = read_requests(options.file)
    if options.lengths_only and isinstance(requests, Trace):
        requests = requests.prompt_tokens, requests.output_tokens
    if options.spread_s is not None and isinstance(requests, Trace):
        requests = requests.spread_batches(0, options.spread_s)
    return fit(requests, options.name)


def made_by(options: argparse.Namespace) -> str:
    """Return the command that makes the same model again."""
    command = f"python -m servegym.traces.fit {options.file.name} --name {options.name}"
    command += "" if options.spread_s is None else f" --spread-s {options.spread_s:g}"
    return command + (" --lengths-only" if options.lengths_only else "")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m servegym.traces.fit")
    parser.add_argument("file", type=Path, help="a trace, a file of lengths, or a ServeGen archive")
    parser.add_argument("--name", required=True, help="name of the workload")
    parser.add_argument(
        "--spread-s", type=float, help="spread batches over a clock tick of so long"
    )
    parser.add_argument("--lengths-only", action="store_true", help="leave the arrival times out")
    for about in ("source", "licence", "citation"):
        parser.add_argument(f"--{about}", help=f"{about} of the data")
    parser.add_argument("--out", type=Path, help="where to write (default: NAME.json here)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit FILE and write the model's JSON (to NAME.json, or --out)."""
    options = parser().parse_args(arguments)
    shipped = workload(options.name) if options.name in workload_names() else None
    texts = {about: getattr(options, about) for about in ("source", "licence", "citation")}
    texts = {key: text or getattr(shipped, key, "") for key, text in texts.items()}
    if missing := [key for key, text in texts.items() if not text]:
        parser().error(f"a new workload needs --{', --'.join(missing)}")
    fitted = replace(fit_file(options), made_by=made_by(options), **texts)
    out = options.out or Path(f"{options.name}.json")
    out.write_text(fitted.to_json(), encoding="utf-8")
    print(
        f"{out}: {fitted.n_rows:,} requests, mean prompt {fitted.mean_prompt_tokens:,.1f}, ", end=""
    )
    print(f"mean output {fitted.mean_output_tokens:,.1f} tokens")


if __name__ == "__main__":
    main()
