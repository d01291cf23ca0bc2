"""A scene: everything that a picture of a paused simulation shows, read once.

All are true values of the present, never a router's stale ones. An instance that drained and is empty counts as
absent, though the engine may not have looked at it yet.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.simulator import state as layout
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.simulation import Simulation

CONDITIONS = ("absent", "active", "starting", "draining", "down")  # by state.ABSENT .. DOWN
STATUSES = ("unfinished", "finished", "rejected", "failed", "cancelled")  # by state.UNFINISHED ..


@dataclass(frozen=True, eq=False)
class Facts:
    """What only whoever steps the simulation knows; anything may be left out.

    step: decisions so far. role: what is decided ("dispatch"). action: the last answer, in words. reward: their sum.
    """

    step: int | None = None
    role: str = ""
    action: str = ""
    reward: float | None = None

    def text(self) -> str:
        """Return the facts that are given, in one line."""
        parts = [] if self.step is None else [f"step {self.step:,}"]
        if self.action:
            parts.append(f"{self.role or 'action'}: {self.action}")
        elif self.role:
            parts.append(self.role)
        if self.reward is not None:
            parts.append(f"reward so far {self.reward:,.6g}")
        return "   ".join(parts)


@dataclass(frozen=True, eq=False)
class Scene:
    """One instant. M instances, Q queues of the gateway; with an admission policy the last is what it holds back.

    conditions: of CONDITIONS, str[M]. running, waiting: requests, int64[M]. used_blocks, waiting_blocks, kv_blocks:
    KV blocks in use, wanted by those that wait, and in all, int64[M]. queue_names: [Q]. queued: requests, int64[Q].
    head_waits_s: since the arrival of each queue's head, float64[Q], NaN for an empty one. counts: requests that
    arrived, and by STATUSES; unfinished are those that arrived and have not ended.
    """

    now_s: float
    conditions: list[str]
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    used_blocks: NDArray[np.int64]
    waiting_blocks: NDArray[np.int64]
    kv_blocks: NDArray[np.int64]
    queue_names: list[str]
    queued: NDArray[np.int64]
    head_waits_s: NDArray[np.float64]
    counts: dict[str, int]
    facts: Facts

    @property
    def kv_shares(self) -> NDArray[np.float64]:
        """KV blocks in use over those there are, float64[M]."""
        return self.used_blocks / self.kv_blocks

    @property
    def wanted_shares(self) -> NDArray[np.float64]:
        """KV blocks that waiting requests want over those there are, float64[M]."""
        return self.waiting_blocks / self.kv_blocks


def look(
    simulation: Simulation,
    *,
    step: int | None = None,
    role: str = "",
    action: str = "",
    reward: float | None = None,
) -> Scene:
    """Return the scene at the simulation's present, with what the caller knows beside (Facts)."""
    state = simulation.state
    seen = [simulation.observe(i) for i in range(len(state.instances))]
    instances = state.instances
    columns = {name: np.array([each[name] for each in seen]) for name in seen[0]}
    n_here = columns["n_running"] + columns["n_waiting"] + instances["n_parked"]
    is_gone = (instances["condition"] == layout.DRAINING) & (n_here + instances["n_incoming"] == 0)
    conditions = np.where(is_gone, layout.ABSENT, instances["condition"])
    names, queued, head_waits_s = _look_at_queues(simulation)
    return Scene(
        now_s=simulation.now_s,
        conditions=[CONDITIONS[c] for c in conditions],
        running=columns["n_running"],
        waiting=columns["n_waiting"],
        used_blocks=columns["used_blocks"],
        waiting_blocks=columns["waiting_blocks"],
        kv_blocks=state.engines["kv_blocks"][instances["engine"]],
        queue_names=names,
        queued=queued,
        head_waits_s=head_waits_s,
        counts=_count(simulation),
        facts=Facts(step, role, action, reward),
    )


def _count(simulation: Simulation) -> dict[str, int]:
    """Return how many requests have arrived, and how many of them have which status."""
    arrived = simulation.state.requests[: int(simulation.state.shared[0]["next_arrival"])]
    by_status = np.bincount(arrived["status"], minlength=len(STATUSES))
    counts = dict(zip(STATUSES, by_status.tolist(), strict=True))
    unfinished = counts.pop("unfinished")
    return {"arrived": len(arrived), **counts, "unfinished": unfinished}


def _look_at_queues(
    simulation: Simulation,
) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64]]:
    """Return the names of the gateway's queues, their lengths, and the waits of their heads, seconds."""
    state, config = simulation.state, simulation.config
    names = _queue_names(simulation, len(state.queues) - 1)
    queues = state.queues[: len(names)]
    if config.admission is not None:
        names, queues = [*names, "held back"], state.queues
    heads = queues["head"]
    is_empty = queues["n_waiting"] == 0
    waits_s = np.full(len(queues), np.nan)
    arrived_ps = state.requests["arrival_ps"][heads[~is_empty]]
    waits_s[~is_empty] = (int(state.shared[0]["now_ps"]) - arrived_ps) / PS_PER_S
    return names, queues["n_waiting"].copy(), waits_s


def _queue_names(simulation: Simulation, n: int) -> list[str]:
    """Return what the n queues hold."""
    config, tenant = simulation.config, simulation.trace.tenant
    if config.queue_by == "tenant" and tenant:
        return [str(name) for name in tenant.names]
    if config.queue_by == "tier" and n > 1:
        return [f"tier {q}" for q in range(n)]
    return ["queue"]
