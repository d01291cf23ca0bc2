"""Result: what a run gave, request by request and in sum, and everything needed to run it again.

The table and the summary are built from the engine's own records when asked for. `save` writes a
folder: trace.parquet (the truth about times), requests.parquet, manifest.json.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import SIMULATOR_HASH
from servegym.simulator.move_table import ledger_of
from servegym.simulator.prediction_error import prediction_error
from servegym.simulator.slo import DEFAULT_SLO, Slo
from servegym.simulator.state import FINISHED
from servegym.simulator.summary import summarise
from servegym.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

    from servegym.simulator.simulation import Simulation

# Above this layer and therefore known by name only, as policies are (POLICY_PACKAGES).
TIMELINE = "servegym.experiments.timeline"
VERSIONED = ("servegym", "numpy", "numba", "pandas", "pyarrow")
MANIFEST, TRACE, REQUESTS = "manifest.json", "trace.parquet", "requests.parquet"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A run up to cut_ps: its end, its horizon, or the instant at which the result was taken.

    records: state.REQUEST[n], the offered requests in order of arrival. system: the name it was
    asked for by; dispatch and params: the policy behind it. offered_load: the multiple of the
    saturation rate that was asked for, if any. ledger: state.LEDGER, the moves that began (move_table.py).
    """

    trace: Trace
    config: ClusterConfig
    system: str
    dispatch: str
    params: Mapping[str, float]
    seed: int
    horizon_s: float | None
    offered_load: float | None
    records: np.ndarray
    instances: np.ndarray
    engines: np.ndarray
    gateway: np.ndarray
    control: np.ndarray
    ledger: np.ndarray
    n_bad_predictions: int
    cut_ps: int

    def __repr__(self) -> str:
        """System, trace and how many requests finished."""
        n, finished = len(self.records), int((self.records["status"] == FINISHED).sum())
        name = self.trace.name or "unnamed"
        return f"<Result {self.system} on {name}: {finished:,} of {n:,} finished>"

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """One row a request, in order of arrival (columns: request_table.py)."""
        from servegym.simulator.request_table import request_table

        return request_table(self)

    @cached_property
    def moves(self) -> "pd.DataFrame":
        """One row a move between instances that began (columns: move_table.py)."""
        from servegym.simulator.move_table import move_table

        return move_table(self)

    def summary(self, slo: Slo = DEFAULT_SLO) -> dict[str, Any]:
        """Return counts, latencies, SLO attainment, costs and what was run (summary.py)."""
        return summarise(self, slo)

    def prediction_error(self) -> dict[str, Any]:
        """Return how far predicted lengths were from the truth (prediction_error.py), whatever the estimator."""
        return prediction_error(self)

    @property
    def total_latency_s(self) -> float:
        """The sum over offered requests of min(end, horizon) - arrival, and penalties, seconds."""
        return self.summary()["total_latency_s"]

    def manifest(self) -> dict[str, Any]:
        """Return everything needed to run it again with the saved trace, and the summary."""
        return {
            "system": self.system,
            "dispatch": self.dispatch,
            "params": dict(self.params),
            "config": self.config.model_dump(mode="json"),
            "profiles": [asdict(row) for row in self.config.fleet_profiles],
            "seed": self.seed,
            "horizon_s": self.horizon_s,
            "load": self.offered_load,
            "workload_hash": self.trace.workload_hash,
            "trace": self.trace.name,
            "engine_hash": SIMULATOR_HASH,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in VERSIONED},
            "summary": self.summary(),
        }

    def save(self, folder: str | Path) -> None:
        """Write trace.parquet, requests.parquet and manifest.json into a folder, made if needed."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.trace.save(folder / TRACE)
        self.requests.to_parquet(folder / REQUESTS, index=False)
        (folder / MANIFEST).write_text(
            json.dumps(self.manifest(), indent=2, allow_nan=False) + "\n"
        )

    def timeline(self, path: str | Path, **options: Any) -> Path:
        """Write the run as one HTML page, to zoom into; return its path (TIMELINE has the options)."""
        return import_module(TIMELINE).timeline(self, path, **options)

    @staticmethod
    def load(folder: str | Path) -> "SavedResult":
        """Read what `save` wrote."""
        return SavedResult.read(Path(folder))


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A saved run: its trace, its table of requests, and the manifest with its summary."""

    trace: Trace
    requests: "pd.DataFrame"
    manifest: dict[str, Any]

    @property
    def config(self) -> ClusterConfig:
        """The configuration it ran with."""
        return ClusterConfig(**self.manifest["config"])

    def summary(self) -> dict[str, Any]:
        """Return the summary that was saved."""
        return self.manifest["summary"]

    def timeline(self, path: str | Path, **options: Any) -> Path:
        """Write the run, played again, as one HTML page; return its path (as Result.timeline)."""
        return import_module(TIMELINE).timeline(self, path, **options)

    @classmethod
    def read(cls, folder: Path) -> "SavedResult":
        """Read a folder; ValueError if its trace is not the one the manifest speaks of."""
        import pandas as pd

        manifest = json.loads((folder / MANIFEST).read_text())
        trace = Trace.load(folder / TRACE)
        if trace.workload_hash != manifest["workload_hash"]:
            raise ValueError(
                f"{folder / TRACE} is not the trace of {MANIFEST}: its workload hash differs"
            )
        return cls(trace, pd.read_parquet(folder / REQUESTS), manifest)


def result_of(
    simulation: "Simulation",
    *,
    system: str | None = None,
    offered_load: float | None = None,
    copy: bool = True,
) -> Result:
    """Return the result of a simulation up to its present.

    copy=False shares the simulation's arrays: for whoever drops the simulation after that.
    """
    shared = simulation.state.shared[0]
    arrived = simulation.state.requests[: int(shared["next_arrival"])]
    instances = simulation.state.instances
    return Result(
        trace=simulation.trace,
        config=simulation.config,
        system=simulation.dispatch.name if system is None else system,
        dispatch=simulation.dispatch.name,
        params=simulation.dispatch_params,
        seed=simulation.seed,
        horizon_s=simulation.horizon_s,
        offered_load=offered_load,
        records=arrived.copy() if copy else arrived,
        instances=instances.copy() if copy else instances,
        engines=simulation.state.engines,
        gateway=simulation.state.gateway.copy(),
        control=simulation.state.control.copy(),
        ledger=ledger_of(simulation.state),
        n_bad_predictions=int(shared["n_bad_predictions"]),
        cut_ps=int(shared["now_ps"]),
    )
