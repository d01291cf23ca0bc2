"""Workloads: models of real or published request streams as numbers, and traces drawn from them.

A workload is what requests ask for (traces/demand), perhaps the arrivals that were recorded with it
(traces/arrivals), and where the numbers come from. Fitted ones are JSON files in
traces/models, made by traces/fit.py; the papers' synthetic ones are in traces/papers.py. A user's
own is named by the path of its file, which ends in .json.
"""

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals import (
    ArrivalProcess,
    Clients,
    Seed,
    arrival_process,
    process_name,
)
from servegym.traces.arrivals.process import require_positive
from servegym.traces.demand.requests import Demand
from servegym.traces.labels import Labels
from servegym.traces.model_file import decode_fields, encode, to_text
from servegym.traces.names import near_match, read_settings
from servegym.traces.trace import Trace

FITTED = "fitted"
FILE_ENDING = ".json"


@dataclass(frozen=True, repr=False)
class Workload:
    """A model of what is asked for, and where the numbers come from.

    n_rows: requests it was fitted on, 0 for a synthetic one. recorded_rate_per_s: their mean rate,
    None when there are no times. made_by: the command or file that holds the numbers. arrivals: the
    recorded process, None when unknown.
    """

    name: str
    source: str
    licence: str
    citation: str
    n_rows: int
    recorded_rate_per_s: float | None
    made_by: str
    demand: Demand
    arrivals: ArrivalProcess | None = None

    def __repr__(self) -> str:
        """The name and the means on one line."""
        rate = self.recorded_rate_per_s
        shown = "no times" if rate is None else f"{rate:,.4g} req/s"
        means = f"{self.mean_prompt_tokens:,.1f}, mean output {self.mean_output_tokens:,.1f} tokens"
        return f"<Workload {self.name}: {shown}, mean prompt {means}>"

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt of a request."""
        return self.demand.mean_prompt_tokens

    @property
    def mean_output_tokens(self) -> float:
        """Mean output of a request."""
        return self.demand.mean_output_tokens

    def draw_lengths(self, n: int, seed: Seed) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return n prompt and n output lengths in tokens, int32.

        The first m of n are the same for every n >= m.
        """
        requests = self.demand.draw(n, seed)
        return requests.prompt_tokens, requests.output_tokens

    def to_json(self) -> str:
        """Return the text of a model file: one line for each field or row."""
        table = {field.name: encode(getattr(self, field.name)) for field in fields(self)}
        return to_text(table) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of a model file; ValueError names what is no JSON, unknown or missing."""
        model = decode_fields(cls, json.loads(text), "a workload")
        if not isinstance(model.name, str):
            raise ValueError(f"name = {model.name!r}; must be a text")
        rate = model.recorded_rate_per_s
        if rate is not None and not (isinstance(rate, int | float) and 0.0 < rate < np.inf):
            raise ValueError(f"recorded_rate_per_s = {rate!r}; must be finite and > 0, or null")
        if not hasattr(model.demand, "mean_prompt_tokens"):
            raise ValueError(f"demand = {model.demand!r}; must be lengths of requests")
        if model.arrivals is not None and not hasattr(model.arrivals, "draw"):
            raise ValueError(f"arrivals = {model.arrivals!r}; must be a process or null")
        return model


def workload_names() -> list[str]:
    """Return the names of the workloads that ship with the package."""
    from servegym.traces.papers import paper_names

    folder = files("servegym.traces.models")
    fitted = [f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")]
    return sorted([*fitted, *paper_names()])


def workload(name: str | Path) -> Workload:
    """Return a workload by name, or from a file if the name ends in .json ("mine.json").

    `fixed-P-O` is any fixed pair of lengths, such as fixed-512-128. ValueError with the near match
    for an unknown name, or saying what is wrong with the file; FileNotFoundError where there is none.
    """
    named = str(name)
    return read_workload(named) if named.endswith(FILE_ENDING) else shipped_workload(named)


def read_workload(path: str | Path) -> Workload:
    """Read the file that `fit` wrote; ValueError names a file that holds no workload, and why."""
    try:
        return Workload.from_json(Path(path).read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is no workload file, as servegym trace fit writes: {error}"
        ) from None


@cache
def shipped_workload(name: str) -> Workload:
    """Return a workload that ships with the package; ValueError with the near match for another."""
    from servegym.traces.papers import find_paper

    if (found := find_paper(name)) is not None:
        return found
    if name not in workload_names():
        raise ValueError(
            f"workload = {name!r}; {near_match(name, workload_names())}; or the path of a .json file"
        )
    return Workload.from_json(files("servegym.traces.models").joinpath(f"{name}.json").read_text())


def generate(
    model: Workload | str | Path,
    n: int,
    rate_per_s: float | None,
    seed: Seed,
    arrivals: str | ArrivalProcess = "poisson",
    **parameters: Any,
) -> Trace:
    """Draw a trace of n requests that arrive at a mean rate of rate_per_s (None: as recorded).

    model: a workload, its name, or the path of its .json file. arrivals: "poisson" or another
    process by name, its fields as parameters (`arrivals="gamma", cv=3` or "gamma:cv=3"); a process;
    or "fitted", the workload's own, stretched in time to the rate. The mean is over the long run: a
    process with slow changes may be faster or slower for a whole trace.
    Arrivals and lengths are separate streams of the seed: another rate or process keeps every
    length (but fitted arrivals of tenants say whose each request is). ValueError names a bad value.
    """
    model = model if isinstance(model, Workload) else workload(model)
    if n < 0:
        raise ValueError(f"n = {n}; must be >= 0")
    rate_per_s = model.recorded_rate_per_s if rate_per_s is None else rate_per_s
    if rate_per_s is None:
        raise ValueError(f"rate_per_s = None, and {model.name} was recorded without times")
    require_positive("rate_per_s", rate_per_s)
    process = choose_process(model, arrivals, parameters)
    drawn_at_per_s = model.recorded_rate_per_s if arrivals == FITTED else None
    times, tenant = draw_arrivals(process, n, drawn_at_per_s or rate_per_s, seed)
    requests = model.demand.draw(n, seed, tenant)
    shown = f"fitted {process_name(process)}" if arrivals == FITTED else process_name(process)
    shown += "".join(f" ({name} {value})" for name, value in parameters.items())
    return Trace(
        times * (drawn_at_per_s / rate_per_s) if drawn_at_per_s else times,
        requests.prompt_tokens,
        requests.output_tokens,
        category=requests.category,
        tenant=requests.tenant,
        name=model.name,
        source=f"workload {model.name}",
        notes=(f"{shown} arrivals at {rate_per_s:g} req/s",),
    )


def choose_process(
    model: Workload, arrivals: str | ArrivalProcess, parameters: dict[str, Any]
) -> ArrivalProcess:
    """Return the process meant; ValueError for one that is unknown, or given with parameters."""
    if isinstance(arrivals, str) and arrivals != FITTED:
        name, _, settings = arrivals.partition(":")
        return arrival_process(name, **parameters, **read_settings("arrivals", arrivals, settings))
    process = model.arrivals if isinstance(arrivals, str) else arrivals
    if process is None:
        raise ValueError(f"arrivals = 'fitted'; {model.name} was recorded without times")
    for name, value in parameters.items():
        raise ValueError(f"{name} = {value}; a process that is given takes no parameters")
    return process


def draw_arrivals(
    process: ArrivalProcess, n: int, rate_per_s: float, seed: Seed
) -> tuple[NDArray[np.float64], Labels | None]:
    """Return n arrival times, s, and whose they are where the process settles that."""
    if isinstance(process, Clients):
        return process.draw_labelled(n, rate_per_s, seed)
    return process.draw(n, rate_per_s, seed), None
