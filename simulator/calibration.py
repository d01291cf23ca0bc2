"""Calibration: a profile fitted to a user's measured iterations, with its error on iterations held out.

The fit is that of iteration_fit.py. Held out: FOLDS parts, each predicted by a fit to the others; iterations of one
composition stay in one part, else repeats would flatter the error. Error: |predicted / measured - 1|. The profile's own
coefficients are fitted to all. Left out on purpose: outliers are not recognised.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.simulator.iteration_fit import fit, unidentified
from servegym.simulator.measured_iterations import KINDS, MeasuredIterations, read_iterations
from servegym.simulator.profile import Profile

FOLDS = 5
MIN_BATCHES = 20  # compositions; the fit has nine unknowns


@dataclass(frozen=True)
class HeldOut:
    """Absolute relative errors of one kind of iteration, percent; None without iterations."""

    kind: str
    n: int
    mape_pct: float | None
    p95_pct: float | None
    max_pct: float | None


@dataclass(frozen=True)
class Calibration:
    """A fitted profile; its held-out errors by kind, `all` last; what the data do not determine."""

    profile: Profile
    held_out: tuple[HeldOut, ...]
    unidentified: tuple[str, ...]
    seed: int

    @property
    def fit(self) -> dict[str, Any]:
        """How the profile was come by, as its file says."""
        return {
            "held_out": [vars(part) for part in self.held_out],
            "folds": FOLDS,
            "seed": self.seed,
            "unidentified": list(self.unidentified),
        }

    def to_json(self) -> str:
        """Return the text of the profile's file."""
        return self.profile.to_json(self.fit)

    def save(self, path: str | Path) -> None:
        """Write the profile's file, which configs take by its path (it ends in .json)."""
        self.profile.save(path, self.fit)


def calibrate(
    measured: MeasuredIterations | str | Path,
    name: str,
    kv_blocks: int | None = None,
    seed: int = 0,
    source: str = "measured iterations",
) -> Calibration:
    """Fit a profile called device/model/tpN to measured iterations or their CSV.

    kv_blocks: the instance's KV blocks of 16 tokens. seed: which iterations are held out together.
    ValueError for a bad name or file, too few iterations, or ones that imply no constant time.
    """
    device, model, tensor_parallel = split_name(name)
    if isinstance(measured, str | Path):
        source = f"{source}, {Path(measured).name}"
        measured = read_iterations(measured)
    held_out = cross_validate(measured, seed)
    found = fit(measured)
    identity = {"device": device, "model": model, "tensor_parallel": tensor_parallel}
    values = {
        **identity,
        "knee_tokens": found.knee_tokens,
        **found.by_name(),
        "fit_mape_pct": held_out[-1].mape_pct,
        "max_prefill_tokens": int(measured.prefill_tokens.max()),
        "max_kv_tokens": int(np.ceil(measured.kv_tokens.max())),
        "kv_blocks_default": kv_blocks,
        "source": source,
        "note": f"fitted to {len(measured):,} iterations; fit_mape_pct is held out",
    }
    return Calibration(Profile.from_mapping(values), held_out, unidentified(measured, found), seed)


def split_name(name: str) -> tuple[str, str, int]:
    """Return device, model and tensor parallelism of device/model/tpN; ValueError for another form."""
    parts = name.split("/")
    degree = parts[-1].removeprefix("tp")
    is_good = len(parts) == 3 and all(parts) and parts[-1].startswith("tp") and degree.isdecimal()
    if not is_good or int(degree) < 1:
        raise ValueError(
            f"name = {name!r}; must be device/model/tpN, such as h100/Llama-3.1-8B/tp1"
        )
    return parts[0], parts[1], int(degree)


def cross_validate(iterations: MeasuredIterations, seed: int) -> tuple[HeldOut, ...]:
    """Return the errors of predictions by fits that did not see them, by kind and for all."""
    fold = draw_folds(iterations.batches, seed)
    predicted_ms = np.empty(len(iterations))
    for k in range(FOLDS):
        is_out = fold == k
        predicted_ms[is_out] = fit(iterations.take(~is_out)).predict_ms(iterations.take(is_out))
    errors_pct = 100.0 * np.abs(predicted_ms / iterations.t_ms - 1.0)
    kinds = iterations.kinds
    parts = [summarise(kind, errors_pct[kinds == kind]) for kind in KINDS]
    return (*parts, summarise("all", errors_pct))


def draw_folds(batches: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the fold of each iteration, the same for one composition; ValueError for too few of them."""
    n_batches = int(batches.max(initial=-1)) + 1
    if n_batches < MIN_BATCHES:
        raise ValueError(
            f"{len(batches)} iterations of {n_batches} different compositions; "
            f"at least {MIN_BATCHES} are needed"
        )
    return np.random.default_rng(seed).permutation(n_batches)[batches] % FOLDS


def summarise(kind: str, errors_pct: NDArray[np.float64]) -> HeldOut:
    """Return mean, 95th percentile and maximum of absolute errors."""
    if not len(errors_pct):
        return HeldOut(kind, 0, None, None, None)
    mean, p95, most = errors_pct.mean(), np.percentile(errors_pct, 95), errors_pct.max()
    return HeldOut(kind, len(errors_pct), float(mean), float(p95), float(most))
