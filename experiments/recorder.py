"""What a run looked like over time: KV use, waiting, running and preemptions of every instance.

A Result keeps no history, and needs none: runs are deterministic and looking never changes one
(docs/engine.md section 2). So the run is played again, stopped at n_samples even instants and looked
at; in the end every request must have got what the result says. Left out: exact instants of
preemptions, which are known to within one sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from servegym.baselines.simulate import ReplayError, rerun
from servegym.experiments.evictions import Evictions
from servegym.experiments.run_text import Run
from servegym.simulator.policy import find_policy
from servegym.simulator.result import Result, SavedResult
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED

if TYPE_CHECKING:
    import pandas as pd

N_SAMPLES = 1000
# What the second run must give again: everything of a request that the table shows.
PROMISED = ("arrival_ps", "admitted_ps", "first_token_ps", "finish_ps", "predicted_tokens",
            "status", "instance", "preemptions", "migrations", "recomputed_tokens")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Recording:
    """Samples of a run, K instants of M instances, taken after what ends at each instant.

    time_s: float64[K]. instances: int[M], which ones. waiting, running (requests), used_blocks and
    preemptions (since the start): int32[K, M]. kv_blocks: int64[M]. evictions: EVICTION[].
    """

    time_s: NDArray[np.float64]
    instances: NDArray[np.int64]
    waiting: NDArray[np.int32]
    running: NDArray[np.int32]
    used_blocks: NDArray[np.int32]
    preemptions: NDArray[np.int32]
    kv_blocks: NDArray[np.int64]
    evictions: np.ndarray

    @property
    def kv_share(self) -> NDArray[np.float64]:
        """KV blocks in use over those there are, float64[K, M]."""
        return self.used_blocks / self.kv_blocks

    def frame(self) -> "pd.DataFrame":
        """Return one row a sample and instance: time_s, instance, waiting, running, ..."""
        import pandas as pd

        n_samples, n_instances = self.waiting.shape
        columns = {
            "time_s": np.repeat(self.time_s, n_instances),
            "instance": np.tile(self.instances, n_samples),
        }
        for name in ("waiting", "running", "used_blocks", "kv_share", "preemptions"):
            columns[name] = getattr(self, name).ravel()
        return pd.DataFrame(columns)


def record(
    run: Run, n_samples: int = N_SAMPLES, instances: Sequence[int] | None = None
) -> Recording:
    """Play a result again and return n_samples >= 2 looks at some instances (default: all).

    The first sample stands at the first arrival, the last at the end of the run. ValueError for bad
    arguments; ReplayError if the second run gives any request something else.
    """
    if n_samples < 2:
        raise ValueError(f"n_samples = {n_samples}; must be >= 2")
    result = rerun(run) if isinstance(run, SavedResult) else run
    chosen = checked_instances(instances, len(result.instances))
    simulation = simulation_of(result)
    start_ps, end_ps = span_ps(result)
    steps = range(n_samples)
    instants = [start_ps + (end_ps - start_ps) * k // (n_samples - 1) for k in steps]
    counts = np.zeros((4, n_samples, len(chosen)), np.int32)
    watch = Evictions(len(simulation.state.requests))
    for k, instant in enumerate(instants):
        simulation.run_until_ps(instant)
        look(simulation, chosen, counts[:, k])
        watch.look(simulation, k)
    check_same(result.records, simulation.state.requests)
    kv_blocks = result.engines["kv_blocks"][result.instances["engine"][chosen]]
    seconds = np.array(instants, np.int64) / PS_PER_S
    waiting, running, used, preempted = counts
    evictions = watch.finish(n_samples - 1)
    return Recording(seconds, chosen, waiting, running, used, preempted, kv_blocks, evictions)


def checked_instances(chosen: Sequence[int] | None, n: int) -> NDArray[np.int64]:
    """Return the instances to look at, all by default; ValueError for one that is not there."""
    found = np.arange(n) if chosen is None else np.array(chosen, dtype=np.int64)
    wrong = found[(found < 0) | (found >= n)]
    if len(wrong):
        raise ValueError(f"instances: {wrong[0]}; must be in 0 .. {n - 1}")
    return found


def simulation_of(result: Result) -> Simulation:
    """Return a simulation at time 0 of what the result is the end of."""
    return Simulation(
        result.trace,
        result.config,
        find_policy("dispatch", result.dispatch),
        dispatch_params=result.params,
        seed=result.seed,
        horizon_s=result.horizon_s,
    )


def span_ps(result: Result) -> tuple[int, int]:
    """Return the first arrival and the end: the last request's, or the cut if any is unfinished."""
    records = result.records
    if not len(records):
        return 0, 0
    is_ended = records["status"] >= FINISHED
    end = int(records["finish_ps"].max()) if is_ended.all() else result.cut_ps
    return int(records["arrival_ps"][0]), end


def look(simulation: Simulation, chosen: NDArray[np.int64], counts: np.ndarray) -> None:
    """Fill counts, int32[4, M]: waiting, running, used blocks, preemptions so far (mutates it)."""
    for m, i in enumerate(chosen.tolist()):
        seen = simulation.observe(i)
        counts[:3, m] = seen["n_waiting"], seen["n_running"], seen["used_blocks"]
    counts[3] = simulation.state.instances["n_preemptions"][chosen]


def check_same(expected: np.ndarray, found: np.ndarray) -> None:
    """ReplayError unless every request that arrived got the same in both runs."""
    for name in PROMISED:
        differing: Any = np.flatnonzero(expected[name] != found[name][: len(expected)])
        if len(differing):
            r = int(differing[0])
            raise ReplayError(
                f"request {r}: a second run gives {name} = {found[name][r]}, the result says "
                f"{expected[name][r]}; was the policy changed since, or does it use global state?"
            )
