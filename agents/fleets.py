"""FleetVecEnv: Dispatch on fleets of several sizes, loads, workloads and scenarios, as one vector environment.

    env = FleetVecEnv(sizes=(4, 8, 16), scenarios=("tight",), replicas=8, seed=0)

One group of sub-environments for each size, workload, scenario and load; the rows of `instances` are padded with zeros
to the largest fleet, and `exists` says which are none. Replicas: the sub-environments of a group play the same requests
with the same luck, episode by episode, and every request is one step in each, so what differs in their rewards is what
their actions did (see rollouts.py). Loads are stratified draws from a range, once for each group. Groups begin at
different places of their first episode, reached with least-requests, so that not all are empty at the same time.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces

from servegym.agents.scenarios import LENGTHS, TRAINING_SEEDS, Mix
from servegym.agents.set_policy import EXISTS, ROWS, rows_of
from servegym.baselines.features import LIMIT
from servegym.envs.sb3 import SB3VecEnv
from servegym.traces.streams import stream

from stable_baselines3.common.vec_env import VecEnv  # isort: skip  # after SB3VecEnv, which names the extra

WAITING = 16.0  # scale of feature 1; that of feature 0 is the seats of an instance


class FleetVecEnv(VecEnv):
    """Groups of Dispatch environments side by side, one a size, workload, knowledge of lengths, scenario and load.

    sizes: instances of a fleet. lengths: of LENGTHS (scenarios.py). scenarios: by name. loads: least and largest.
    replicas: sub-environments of a group, which play the same requests. options: further ones of Dispatch: reward, slo,
    system. ValueError for what a Mix or Dispatch does not take.
    """

    render_mode = None

    def __init__(
        self,
        sizes: Sequence[int] = (4, 8, 16),
        workloads: Sequence[str] = ("azure-conv", "sharegpt"),
        *,
        scenarios: Sequence[str],
        lengths: Sequence[str] = ("predicted",),
        loads: tuple[float, float] = (0.85, 1.05),
        loads_each: int = 1,
        replicas: int = 8,
        requests: int = 6_000,
        seed: int = 0,
        **options: Any,
    ) -> None:
        Mix(tuple(sizes), tuple(workloads), tuple(lengths), loads, tuple(scenarios))  # checks them
        cells = list(product(sizes, workloads, lengths, scenarios, range(loads_each)))
        self.largest, self.replicas, self.requests = max(sizes), replicas, requests
        self.loads = stratified(loads, len(cells), seed)
        self.envs = [
            SB3VecEnv(
                "servegym/Dispatch-v0",
                replicas,
                flatten=False,
                features={"queues": []},
                workload=workload,
                load=load,
                episode_requests=requests,
                horizon_s=None,
                cluster={"scenario": scenario, "instances": m, **LENGTHS[known]},
                **options,
            )
            for (m, workload, known, scenario, _), load in zip(cells, self.loads, strict=True)
        ]
        self._seats = [group.vector.options.config.max_num_seqs for group in self.envs]
        self.n_instances = np.repeat([m for m, *_ in cells], replicas)
        self.group_of = np.repeat(np.arange(len(cells)), replicas)
        self._first_seed = seed
        n = len(self.group_of)
        self._observations = {
            "cluster": np.zeros((n, len(ROWS["cluster"])), np.float32),
            "instances": np.zeros((n, self.largest, len(ROWS["instances"])), np.float32),
            "request": np.zeros((n, len(ROWS["request"])), np.float32),
            EXISTS: (np.arange(self.largest) < self.n_instances[:, None]).astype(np.float32),
        }
        space: dict[str, spaces.Space] = {
            part: spaces.Box(0.0, LIMIT, rows.shape[1:], np.float32)
            for part, rows in self._observations.items()
        }
        super().__init__(n, spaces.Dict(space), spaces.Discrete(self.largest))
        self._actions = np.zeros(n, np.int64)

    @property
    def rates_per_s(self) -> np.ndarray:
        """The requests per second of each sub-environment, float64[N]."""
        rates = [group.vector.options.traces.rate_per_s for group in self.envs]
        return np.repeat(np.array(rates, np.float64), self.replicas)

    def discounts(self, tau_s: float) -> np.ndarray:
        """Return float64[N]: what a step of each discounts by, so that all forget over tau_s seconds."""
        return np.exp(-1.0 / (tau_s * self.rates_per_s))

    def reset(self) -> dict[str, np.ndarray]:
        """Begin again: with the seed of `seed()`, or of the constructor, group g at episode g / groups."""
        first = self._first_seed if self._seeds[0] is None else self._seeds[0]
        self._reset_seeds()
        for g, group in enumerate(self.envs):
            group._seeds = [group_seed(first, g)] * self.replicas
            group.reset()
            for _ in range(g * self.requests // len(self.envs)):
                seen = rows_of(group.batch.split(group.batch.table.observations)["instances"])
                group.step(np.argmin(seen[:, :, 0] * self._seats[g] + seen[:, :, 1] * WAITING, 1))
            self._see(g, group.batch.split(group.batch.table.observations))
        return self._copy()

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions; step_wait plays them."""
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict]]:
        """Return observations, rewards float32[N], dones bool[N] and infos."""
        rewards, dones = np.empty(self.num_envs, np.float32), np.empty(self.num_envs, bool)
        infos: list[dict[str, Any]] = []
        for g, group in enumerate(self.envs):
            here = self._places(g)
            _, rewards[here], dones[here], told = group.step(self._actions[here])
            self._see(g, group.batch.split(group.batch.table.observations))
            infos += [self._pad_terminal(info, g) for info in told]
        return self._copy(), rewards, dones, infos

    def action_masks(self) -> np.ndarray:
        """Return bool[N, largest]: the instances that exist and accept."""
        masks = np.zeros((self.num_envs, self.largest), bool)
        for g, group in enumerate(self.envs):
            here = self._places(g)
            masks[here, : self.n_instances[here.start]] = group.action_masks()
        return masks

    def _places(self, g: int) -> slice:
        return slice(g * self.replicas, (g + 1) * self.replicas)

    def _see(self, g: int, seen: dict[str, np.ndarray]) -> None:
        """Write a group's observations into the table (padding stays 0)."""
        here = self._places(g)
        for part, rows in seen.items():
            if part == "instances":
                self._observations[part][here, : self.n_instances[here.start]] = rows_of(rows)
            else:
                self._observations[part][here] = rows

    def _copy(self) -> dict[str, np.ndarray]:
        return {part: rows.copy() for part, rows in self._observations.items()}

    def _pad_terminal(self, info: dict[str, Any], g: int) -> dict[str, Any]:
        last = info.get("terminal_observation")
        if last is None:
            return info
        e = g * self.replicas
        rows = np.zeros_like(self._observations["instances"][e])
        rows[: self.n_instances[e]] = rows_of(last["instances"])
        padded = {**last, "instances": rows, EXISTS: self._observations[EXISTS][e]}
        return info | {"terminal_observation": padded}

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of this, once for every sub-environment."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of this; it has one for all."""
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """Return what a method of this returns, row by row (action_masks)."""
        rows = getattr(self, method_name)(*args, **kwargs)
        return [rows[e] for e in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Return whether this has an attribute."""
        return hasattr(self, attr_name)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return what SB3VecEnv says: episode statistics are there, other wrappers are not."""
        return self.envs[0].env_is_wrapped(wrapper_class, [0]) * len(
            list(self._get_indices(indices))
        )


def stratified(bounds: tuple[float, float], n: int, seed: int) -> list[float]:
    """Return n draws, one of each n-th part of the range, in random order."""
    rng = stream(seed, "training loads")
    return [
        bounds[0] + (bounds[1] - bounds[0]) * (k + rng.random()) / n for k in rng.permutation(n)
    ]


def group_seed(seed: int, g: int) -> int:
    """Return the environment seed of group g, of TRAINING_SEEDS."""
    rng = stream(seed, f"training group {g}")
    return int(rng.integers(TRAINING_SEEDS.start, TRAINING_SEEDS.stop))
