"""How close the simulator comes to recorded runs of real vLLM 0.19 and of Vidur.

The recorded runs lie in the data folder (reference/, each with SOURCE.md). Nothing is tuned for the RTX 4090. For the
RTX PRO 6000 and for Vidur's run near its knee one scalar on the iteration time comes from the first requests, and the
other requests are judged. The scalar is the one that makes the mean TPOT of the first requests equal, by bisection:
since a slower engine also runs fuller, one step of recorded / simulated overshoots (the row without a target).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servegym.baselines.simulate import simulate
from servegym.benchmarks.rows import Row
from servegym.benchmarks.targets import judged
from servegym.simulator.config import ClusterConfig
from servegym.traces import Trace, load

SCALARS, SCALAR_STEPS = (0.5, 2.0), 14  # to 1e-4
VIDUR: dict[str, Any] = {
    "profile": "a100_sxm/Llama-2-7B/tp1",
    "kv_blocks": 7424,
    "max_num_seqs": 128,
    "watermark": 0.01,
}


def data_folder() -> Path:
    """Return the data folder: SERVEGYM_DATA, else ../shared/data beside the repository; ValueError if absent."""
    chosen = os.environ.get("SERVEGYM_DATA")
    folder = Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "reference").is_dir():
        where = f" in {folder}" if chosen else ""
        raise ValueError(f"no recorded runs{where}; give --data DIR or set SERVEGYM_DATA")
    return folder


@dataclass(frozen=True)
class Run:
    """A simulated run beside the recorded one, seconds, in trace order; gaps = output tokens - 1."""

    ttft_s: np.ndarray
    e2e_s: np.ndarray
    recorded_ttft_s: np.ndarray
    recorded_e2e_s: np.ndarray
    gaps: np.ndarray

    def mean_tpot(self, which: slice, is_recorded: bool) -> float:
        """Return the mean TPOT over the requests of `which` that have more than one token."""
        e2e, ttft = (
            (self.recorded_e2e_s, self.recorded_ttft_s)
            if is_recorded
            else (self.e2e_s, self.ttft_s)
        )
        has_gaps = self.gaps[which] > 0
        return float(((e2e - ttft)[which][has_gaps] / self.gaps[which][has_gaps]).mean())

    def tpot_ratio(self, which: slice = slice(None)) -> float:
        """Return recorded / simulated mean TPOT."""
        return self.mean_tpot(which, True) / self.mean_tpot(which, False)

    def mape(self, which: slice = slice(None)) -> float:
        """Return the mean absolute relative error of each request's E2E, %."""
        return float(100 * np.abs(self.e2e_s / self.recorded_e2e_s - 1)[which].mean())

    def ttft_error(self) -> float:
        """Return the absolute relative error of the mean TTFT, %."""
        return float(100 * abs(self.ttft_s.mean() / self.recorded_ttft_s.mean() - 1))

    def e2e_errors(self, which: slice) -> tuple[float, float]:
        """Return the absolute relative errors of the mean and of the P99 of E2E, %."""
        simulated, recorded = self.e2e_s[which], self.recorded_e2e_s[which]
        mean = simulated.mean() / recorded.mean() - 1
        p99 = np.percentile(simulated, 99) / np.percentile(recorded, 99) - 1
        return float(100 * abs(mean)), float(100 * abs(p99))


def recorded_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a recorded run by header name, float64."""
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names or ()}


def play(trace: Trace, recorded: dict[str, np.ndarray], **options: Any) -> Run:
    """Simulate the trace and set it beside the recorded run."""
    requests = simulate(trace, ClusterConfig(**options), "round-robin").requests
    return Run(
        ttft_s=requests["ttft_s"].to_numpy(float),
        e2e_s=requests["e2e_s"].to_numpy(float),
        recorded_ttft_s=recorded["ttft_s"],
        recorded_e2e_s=recorded["e2e_s"],
        gaps=recorded["output_tokens"] - 1,
    )


def fit_scalar(
    trace: Trace, recorded: dict[str, np.ndarray], first_n: int, **options: Any
) -> float:
    """Return the scalar on the iteration time that meets the mean TPOT of the first requests."""
    low, high = SCALARS
    for _ in range(SCALAR_STEPS):
        scalar = (low + high) / 2
        run = play(trace, recorded, calibration=scalar, **options)
        is_too_fast = run.tpot_ratio(slice(first_n)) > 1
        low, high = (scalar, high) if is_too_fast else (low, scalar)
    return (low + high) / 2


def run() -> list[Row]:
    """Return all rows; ValueError without the data folder."""
    folder = data_folder() / "reference"
    return [*rtx_4090_rows(folder), *rtx_pro_6000_rows(folder), *vidur_rows(folder)]


def rtx_4090_rows(folder: Path) -> list[Row]:
    """Return the rows of the KV-saturated vLLM run, untuned."""
    path = folder / "vllm" / "RTX4090_Llama-3.1-8B.csv"
    profile = "rtx_4090/Llama-3.1-8B/tp1"
    run = play(load(path), recorded_columns(path), instances=1, profile=profile, kv_blocks=2588)
    name = "vLLM RTX 4090: "
    return [
        judged(name + "E2E MAPE", run.mape()),
        judged(name + "mean TPOT", 100 * abs(1 / run.tpot_ratio() - 1)),
        judged(name + "mean TTFT", run.ttft_error()),
    ]


def rtx_pro_6000_rows(folder: Path) -> list[Row]:
    """Return the rows of the compute-bound vLLM run, judged after the requests that gave the scalar."""
    path = folder / "vllm" / "RTXPRO6000_Llama-3.1-8B.csv"
    options: dict[str, Any] = {
        "instances": 1,
        "profile": "rtx_pro_6000/Llama-3.1-8B/tp1",
        "max_num_seqs": 128,
    }
    trace, recorded = load(path), recorded_columns(path)
    one_step = play(trace, recorded, calibration=1.0, **options).tpot_ratio(slice(100))
    scalar = fit_scalar(trace, recorded, 100, **options)
    run = play(trace, recorded, calibration=scalar, **options)
    overshot = play(trace, recorded, calibration=one_step, **options)
    name = "vLLM RTX PRO 6000: "
    rest = slice(100, None)
    return [
        Row(name + "scalar of requests 0-99", scalar, "times"),
        judged(name + "E2E MAPE, requests 100-299", run.mape(rest)),
        Row(name + "E2E MAPE, scalar of one step", overshot.mape(rest), "%"),
    ]


def vidur_rows(folder: Path) -> list[Row]:
    """Return the rows of the three Vidur runs."""
    cases: list[tuple[str, str, dict[str, Any], int]] = [
        ("r1_vllm_q2", "n1000_q2", {"engine": "vllm-v0", "max_num_batched_tokens": 4096}, 0),
        (
            "r1_sarathi512_q3p5",
            "n1000_q3p5",
            {"engine": "sarathi", "max_num_batched_tokens": 512},
            200,
        ),
        (
            "r8_sarathi512_round_robin_q20",
            "n4000_q20",
            {"engine": "sarathi", "max_num_batched_tokens": 512, "instances": 8},
            0,
        ),
    ]
    rows = []
    for name, trace_name, options, first_n in cases:
        options = {"instances": 1, **VIDUR, **options}
        trace = load(folder / "vidur" / f"trace_{trace_name}.csv")
        recorded = recorded_columns(folder / "vidur" / f"{name}.csv")
        scalar = fit_scalar(trace, recorded, first_n, **options) if first_n else 1.0
        run = play(trace, recorded, calibration=scalar, **options)
        mean, p99 = run.e2e_errors(slice(first_n, None))
        rows += [
            judged(f"Vidur {name}: mean E2E", mean),
            judged(f"Vidur {name}: P99 E2E", p99),
        ]
    return rows
