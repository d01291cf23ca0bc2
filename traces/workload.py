"""Fitted workloads: length distributions of real traces as numbers, and traces drawn from them.

Lengths are drawn by inverting empirical quantile tables, prompt and output independently: their
correlation in production traffic is close to zero, and spiky inputs fit no lognormal. Arrivals are
a Poisson or Gamma renewal process. Models are JSON files in traces/models, made by traces/fit.py.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from servegym.traces.names import near_match
from servegym.traces.streams import stream
from servegym.traces.trace import Trace

Seed = int | np.random.SeedSequence
Arrivals = Literal["poisson", "gamma"]
ARRIVALS = ("poisson", "gamma")


@dataclass(frozen=True)
class QuantileTable:
    """The inverse of a distribution of token counts.

    levels: increasing from 0 to 1. values: tokens, values[k] the quantile at levels[k]; between
    them it is linear, rounded to whole tokens. mean: of the data itself, tokens.
    """

    levels: tuple[float, ...]
    values: tuple[int, ...]
    mean: float

    def quantile(self, levels: NDArray[np.floating]) -> NDArray[np.int32]:
        """Return token counts, int32, of the same shape as levels (in [0, 1])."""
        return np.rint(np.interp(levels, self.levels, self.values)).astype(np.int32)


@dataclass(frozen=True)
class Workload:
    """A fitted workload: prompt and output lengths, and where the numbers come from.

    n_rows: requests it was fitted on. recorded_rate_per_s: their mean rate, None when the data has
    no times. made_by: the command that made the file.
    """

    name: str
    source: str
    licence: str
    citation: str
    n_rows: int
    recorded_rate_per_s: float | None
    made_by: str
    prompt: QuantileTable
    output: QuantileTable

    def draw_lengths(self, n: int, seed: Seed) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return n prompt and n output lengths in tokens, int32.

        The first m of n are the same for every n >= m.
        """
        prompts = self.prompt.quantile(stream(seed, "prompt_tokens").random(n))
        outputs = self.output.quantile(stream(seed, "output_tokens").random(n))
        return prompts, outputs

    def to_json(self) -> str:
        """Return the text of a model file: one line for each field."""
        fields = asdict(self)
        tables = {key: fields.pop(key) for key in ("prompt", "output")}
        flat = fields | {f"{key}_{part}": t[part] for key, t in tables.items() for part in t}
        lines = (f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in flat.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of a model file."""
        fields = json.loads(text)
        tables = {}
        for key in ("prompt", "output"):
            levels, values = tuple(fields.pop(f"{key}_levels")), tuple(fields.pop(f"{key}_values"))
            tables[key] = QuantileTable(levels, values, fields.pop(f"{key}_mean"))
        return cls(**fields, **tables)


def workload_names() -> list[str]:
    """Return the names of the fitted workloads that ship with the package."""
    folder = files("servegym.traces.models")
    return sorted(
        f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")
    )


@cache
def workload(name: str) -> Workload:
    """Return a fitted workload by name; ValueError with the near match for an unknown one."""
    if name not in workload_names():
        raise ValueError(f"workload = {name!r}; {near_match(name, workload_names())}")
    return Workload.from_json(files("servegym.traces.models").joinpath(f"{name}.json").read_text())


def generate(
    model: Workload | str,
    n: int,
    rate_per_s: float,
    seed: Seed,
    arrivals: Arrivals = "poisson",
    cv: float = 1.0,
) -> Trace:
    """Draw a trace of n requests that arrive at a mean rate of rate_per_s.

    arrivals: "poisson", or "gamma" inter-arrivals with coefficient of variation cv. Arrivals and
    lengths are separate streams of the seed: another rate, process or cv keeps every length, and
    another rate only scales the arrivals. ValueError names a bad value.
    """
    model = workload(model) if isinstance(model, str) else model
    if n < 0:
        raise ValueError(f"n = {n}; must be >= 0")
    require_positive("rate_per_s", rate_per_s)
    gaps = draw_gaps(n, seed, arrivals, cv)
    prompts, outputs = model.draw_lengths(n, seed)
    process = f"gamma (cv {cv:g})" if arrivals == "gamma" else "poisson"
    return Trace(
        np.cumsum(gaps) / rate_per_s,
        prompts,
        outputs,
        name=model.name,
        source=f"fitted workload {model.name}",
        notes=(f"{process} arrivals at {rate_per_s:g} req/s",),
    )


def draw_gaps(n: int, seed: Seed, arrivals: Arrivals, cv: float) -> NDArray[np.float64]:
    """Return n inter-arrival times with mean 1, float64."""
    if arrivals not in ARRIVALS:
        raise ValueError(f"arrivals = {arrivals!r}; {near_match(arrivals, ARRIVALS)}")
    require_positive("cv", cv)
    random = stream(seed, "arrivals")
    if arrivals == "gamma":
        shape = 1.0 / (cv * cv)
        return random.standard_gamma(shape, n) / shape
    if cv != 1.0:
        raise ValueError(f"cv = {cv}; poisson arrivals have cv 1, use arrivals='gamma'")
    return random.standard_exponential(n)


def require_positive(field: str, value: float) -> None:
    """Refuse a value that is not finite and > 0."""
    if not (np.isfinite(value) and value > 0.0):
        raise ValueError(f"{field} = {value}; must be finite and > 0")
