"""Evaluation: what candidates cost on cases, on the same traces with the same luck, in one process or several.

Each process keeps a paused Simulation for every kind of cluster and plays all candidates in it. The costs are the same
however many processes there are, and in whatever order they play.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from servegym.agents.objectives import find_objective
from servegym.agents.scenarios import Case
from servegym.simulator.policy import Policy
from servegym.simulator.result import Result, result_of
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace

CANDIDATES_A_TASK = 9  # so that processes finish at about the same time


@lru_cache(maxsize=4)
def _trace(case: Case) -> Trace:
    return case.trace()


class Player:
    """Plays cases, those of one kind of cluster and policies that differ in nothing but weights in the same arrays."""

    def __init__(self) -> None:
        self._simulations: dict[tuple[Any, ...], Simulation] = {}

    def play(self, policy: Policy, case: Case) -> Result:
        """Return the run of a case; valid until the next one of that kind (it shares the arrays)."""
        cluster = (case.scenario, case.instances, case.lengths, case.requests)
        kind = (*cluster, policy.function, policy.n_values)
        if kind not in self._simulations:
            self._simulations[kind] = Simulation(
                _trace(case), case.config(), policy, seed=case.seed
            )
        simulation = self._simulations[kind]
        simulation.dispatch = policy
        simulation.restart(_trace(case), case.seed)
        simulation.run()
        return result_of(simulation, copy=False)


def costs_of(policies: Sequence[Policy], case: Case, objective: str) -> list[float]:
    """Return what each candidate costs on a case; NaN for one whose run fails."""
    player = _player()
    costs = []
    for policy in policies:
        try:
            costs.append(find_objective(objective).cost(player.play(policy, case)))
        except (RuntimeError, ValueError):  # of the engine: no progress, a bad answer
            costs.append(float("nan"))
    return costs


@lru_cache(maxsize=1)
def _player() -> Player:
    return Player()


def as_json(value: float) -> float | None:
    """Return a cost or score as JSON has it: None where a run failed."""
    return float(value) if np.isfinite(value) else None


class Evaluator:
    """Costs of candidates, worked out here or by a pool of processes."""

    def __init__(self, pool: ProcessPoolExecutor | None, objective: str) -> None:
        self._pool, self._objective = pool, objective

    def costs(self, policies: Sequence[Policy], cases: Sequence[Case]) -> np.ndarray:
        """Return float64[cases, candidates]."""
        slices = [
            policies[k : k + CANDIDATES_A_TASK] for k in range(0, len(policies), CANDIDATES_A_TASK)
        ]
        tasks = [(part, case, self._objective) for case in cases for part in slices]
        play = map if self._pool is None else self._pool.map
        flat = [cost for costs in play(costs_of, *zip(*tasks, strict=True)) for cost in costs]
        return np.array(flat).reshape(len(cases), len(policies))


@contextmanager
def evaluator(workers: int, objective: str) -> Iterator[Evaluator]:
    """Yield an Evaluator with so many processes, which end with the block; ValueError below one."""
    find_objective(objective)
    with pool_of(workers) as pool:
        yield Evaluator(pool, objective)


@contextmanager
def pool_of(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Yield so many processes, which end with the block; of one: None, this one. ValueError below one."""
    if workers < 1:
        raise ValueError(f"workers = {workers}; must be >= 1")
    if workers == 1:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would share the compiler's state
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_end_with_the_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_the_parent() -> None:
    """Let Ctrl-C stop the process that trains, which ends those that play; if it is killed they end, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_its_end, daemon=True).start()


def _wait_for_its_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
