"""Fit a workload to the lengths of real requests: empirical quantiles, as numbers in a JSON file.

    python -m servegym.traces.fit FILE --name azure-conv

FILE is any trace that `load` reads, or a file of lengths alone. Refitting a shipped workload keeps
its source, licence and citation; a new one needs them as options. Quantiles lie every 0.1 %, and
more densely in the upper tail, where few requests carry much of the mean.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.formats import FORMATS
from servegym.traces.load import NoArrivalsError, load
from servegym.traces.table import open_text, read_table
from servegym.traces.trace import Trace
from servegym.traces.validation import check_tokens, rows_of
from servegym.traces.workload import QuantileTable, Workload, workload, workload_names

EVEN_LEVELS = 1000
TAIL_LEVELS = 64
LEVEL_DIGITS = 6

Lengths = tuple[NDArray[np.int32], NDArray[np.int32]]


def fit_lengths(
    requests: Trace | tuple[ArrayLike, ArrayLike],
    name: str,
    source: str = "",
    licence: str = "",
    citation: str = "",
    made_by: str = "",
) -> Workload:
    """Return the workload fitted to a trace, or to a pair of prompt and output lengths in tokens.

    Its quantile tables are the data's own; the recorded rate is kept when there are times.
    ValueError for no requests, or naming the first length that is not >= 1.
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
        prompt=quantile_table(prompts),
        output=quantile_table(outputs),
    )


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


def read_lengths(path: str | Path) -> Lengths:
    """Return prompt and output lengths of a file that has lengths but no arrivals.

    ValueError when it has no pair of columns that a known format uses.
    """
    path = Path(path)
    with open_text(path) as text:
        table = read_table(text, path.name)
        for entry in FORMATS:
            if {entry.prompt, entry.output} <= set(table.header):
                rows, columns = table.read((entry.prompt, entry.output), None)
                where = rows_of(path.name, rows)
                prompts = check_tokens("prompt_tokens", columns[entry.prompt], where=where)
                outputs = check_tokens("output_tokens", columns[entry.output], where=where)
                return prompts, outputs
    raise ValueError(f"{path.name} has no known length columns; found {', '.join(table.header)}")


def read_requests(path: str | Path) -> Trace | Lengths:
    """Return the trace in a file, or its lengths when it has no arrivals."""
    try:
        return load(path)
    except NoArrivalsError:
        return read_lengths(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit FILE and write the model's JSON (to NAME.json, or --out)."""
    parser = argparse.ArgumentParser(prog="python -m servegym.traces.fit")
    parser.add_argument("file", type=Path, help="a trace, or a file of lengths")
    parser.add_argument("--name", required=True, help="name of the workload")
    for about in ("source", "licence", "citation"):
        parser.add_argument(f"--{about}", help=f"{about} of the data")
    parser.add_argument("--out", type=Path, help="where to write (default: NAME.json here)")
    options = parser.parse_args(arguments)
    shipped = workload(options.name) if options.name in workload_names() else None
    texts = {about: getattr(options, about) for about in ("source", "licence", "citation")}
    texts = {key: text or getattr(shipped, key, "") for key, text in texts.items()}
    if missing := [key for key, text in texts.items() if not text]:
        parser.error(f"a new workload needs --{', --'.join(missing)}")
    made_by = f"python -m servegym.traces.fit {options.file.name} --name {options.name}"
    fitted = fit_lengths(read_requests(options.file), options.name, made_by=made_by, **texts)
    out = options.out or Path(f"{options.name}.json")
    out.write_text(fitted.to_json(), encoding="utf-8")
    print(f"{out}: {fitted.n_rows:,} requests, mean prompt {fitted.prompt.mean:,.1f}, ", end="")
    print(f"mean output {fitted.output.mean:,.1f} tokens")


if __name__ == "__main__":
    main()
