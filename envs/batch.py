"""A batch of sub-environments of one kind: their simulations, and the arrays that the kernels of episode.py work on.

The single environment is a batch of one, so the vector environment runs the same code.
"""

import copy
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from servegym.envs.actions import describe, levels_of
from servegym.envs.episode import (
    ANSWER,
    BEGIN,
    EPISODE,
    KINDS,
    OUTCOMES,
    TERMS,
    Table,
    play,
    store_table,
)
from servegym.envs.observation import INSTANCES
from servegym.envs.options import HEADROOM_PARAMS, Options
from servegym.envs.spaces import places, split
from servegym.simulator import state as layout
from servegym.simulator.build import STREAM_KEYS, packed_size, random_stream, records
from servegym.simulator.result import Result, result_of
from servegym.simulator.seconds import to_ps
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import NEVER


class Batch:
    """N simulations, each paused at a decision of the agent or over; `table` has what they show and are told."""

    def __init__(self, options: Options, n: int) -> None:
        self.options = options
        self.asks_what_if = bool(options.fallback and options.fallback.uses_what_if)
        self._memory: np.ndarray | None = None
        self.simulations: list[Simulation | None] = [None] * n
        self.episode_seeds = [0] * n
        self.n_begun = [0] * n  # episodes
        fallback, config = options.fallback, options.config
        columns = options.columns
        self.places = places(options)
        self.table = Table(
            episodes=records(n, EPISODE),
            actions=np.zeros(n, np.int64),
            levels=np.zeros((n, len(HEADROOM_PARAMS))),
            slots=np.zeros((0, 2), np.int64),
            fallback_params=np.zeros((n, fallback.n_values if fallback else 0)),
            fallback_memory=np.zeros((n, fallback.memory_size(config) if fallback else 0)),
            fallback_streams=np.zeros((n, 1), np.uint64),
            features=columns,
            row=np.zeros(columns.shape[1], np.float32),
            is_whole=np.array([is_in_order(columns[INSTANCES])], np.int64),
            observations=np.zeros((n, options.n_observed), np.float32),
            masks=np.ones((n, options.n_actions), np.int8),
            outcomes=np.zeros((OUTCOMES, n)),
        )
        self._fill_episodes()
        self._store()

    def __len__(self) -> int:
        return len(self.simulations)

    @property
    def episodes(self) -> np.ndarray:
        """EPISODE[N]."""
        return self.table.episodes

    def simulation(self, e: int = 0) -> Simulation:
        """Return the simulation of a sub-environment that was reset."""
        found = self.simulations[e]
        if found is None:
            raise ResetNeeded("call reset() first")
        return found

    def begin(self, e: int, sequence: np.random.SeedSequence) -> None:
        """Prepare a fresh episode of sub-environment e, drawn from a sequence; `play` runs it to its first decision."""
        options = self.options
        trace = options.traces.draw(sequence)
        seed = self.episode_seeds[e] = int(sequence.generate_state(1)[0])
        self.n_begun[e] += 1
        simulation = self.simulations[e]
        if simulation is None:
            simulation = self.simulations[e] = Simulation(
                trace,
                options.config,
                options.dispatch,
                dispatch_params=options.dispatch_params,
                seed=seed,
                horizon_s=options.horizon_s,
                asks_what_if=self.asks_what_if,
                keeps_outlook=True,
                tally_slo=options.slo,
            )
            self._pack(e, simulation)
        else:
            simulation.restart(trace, seed)
        self._fill_episode(e, simulation, seed)

    def _pack(self, e: int, simulation: Simulation) -> None:
        """Let the states of all sub-environments lie in one allocation, if there is more than one."""
        if len(self) == 1:
            return
        size = packed_size(simulation.state)
        if self._memory is None:
            self._memory = np.empty((len(self), size), np.uint8)
        if size <= self._memory.shape[1]:
            simulation.pack(self._memory[e])

    def _store(self) -> None:
        """Tell the kernels where the table's arrays are."""
        self._words = np.zeros(layout.LINK_WORDS, np.int64)
        self._pointer = store_table(self._words.ctypes.data, self.table)

    def _fill_episodes(self) -> None:
        """Write what all sub-environments and episodes have in common."""
        options, episodes = self.options, self.episodes
        episodes["kind"] = KINDS.index(options.kind)
        episodes["term"] = TERMS.index(options.reward)
        episodes["interval_ps"] = to_ps(options.control_interval_s, "control_interval_s")
        episodes["most_pairs"] = options.most_pairs

    def _fill_episode(self, e: int, simulation: Simulation, seed: int) -> None:
        options, episode = self.options, self.episodes[e]
        episode["horizon_ps"] = NEVER if simulation.horizon_ps is None else simulation.horizon_ps
        episode["is_cut"] = len(simulation.state.requests) < len(simulation.trace)
        episode["todo"] = BEGIN
        if options.fallback is not None:
            self.table.fallback_memory[e] = 0.0
            self.table.fallback_streams[e] = random_stream(seed, STREAM_KEYS[options.fallback.kind])
            params = options.fallback.param_values({}, simulation.trace)
            self.table.fallback_params[e] = params
        if options.kind == "headroom" and not len(self.table.slots):
            self.table = self.table._replace(slots=headroom_slots(simulation))
            self._store()
        self.link(e)

    def link(self, e: int) -> None:
        """Tell the kernels where sub-environment e is in this process."""
        shared, episode = self.simulation(e).state.shared[0], self.episodes[e]
        episode["state_pointer"], episode["run_address"] = (
            shared["state_pointer"],
            shared["run_address"],
        )
        fallback = self.options.fallback
        episode["fallback_address"] = fallback.address if fallback else 0

    def allow_what_if(self) -> None:
        """Let policies outside the engine ask what would happen (compiles that part on first use)."""
        self.asks_what_if = True
        for e, simulation in enumerate(self.simulations):
            if simulation is not None:
                simulation.allow_what_if()
                self.link(e)

    def play(self, is_answered: bool = False) -> None:
        """Run every sub-environment that has something to do to its next decision, or its end.

        is_answered: all that are not about to begin have their actions in the table.
        """
        while play(self._pointer, is_answered):
            is_answered = False
            for e in np.flatnonzero(self.episodes["todo"]):
                self.simulation(int(e)).provide(int(self.episodes["status"][e]))
                self.link(int(e))

    def answer(self, e: int, action: np.ndarray, is_strict: bool) -> None:
        """Let sub-environment e take a checked action at the next `play`; strict: ValueError if it is masked."""
        if self.options.kind == "headroom":
            self.table.levels[e] = levels_of(action)
        else:
            if is_strict and not self.table.masks[e, action] and not self.episodes["is_over"][e]:
                legal = np.flatnonzero(self.table.masks[e]).tolist()
                raise ValueError(f"action = {action}; it is masked: legal are {legal}")
            self.table.actions[e] = action
        self.episodes["todo"][e] = ANSWER

    def answer_all(self, actions: np.ndarray, who: np.ndarray, is_strict: bool) -> None:
        """Let all sub-environments take checked actions at the next `play`; strict: none of `who` may be masked."""
        if self.options.kind == "headroom":
            self.table.levels[:] = levels_of(actions)
            return
        if is_strict:
            legal = self.table.masks[np.arange(len(self)), actions] != 0
            is_bad = who & ~legal & (self.episodes["is_over"] == 0)
            if is_bad.any():
                e = int(np.argmax(is_bad))
                raise ValueError(f"action[{e}] = {actions[e]}; it is masked")
        self.table.actions[:] = actions

    def is_ended(self, e: int) -> bool:
        """Return whether the last step ended the episode."""
        episode = self.episodes[e]
        return bool(episode["terminated"] or episode["truncated"])

    def info(self, e: int) -> dict[str, Any]:
        """Return what a step says beside observation, reward and end."""
        episode = self.episodes[e]
        return {
            "elapsed_s": float(episode["elapsed_s"]),
            "illegal_action": bool(episode["is_illegal"]),
            "terms": dict(zip(TERMS, episode["terms"].tolist(), strict=True)),
        }

    def facts(self, e: int) -> dict[str, Any]:
        """Return what a picture says of the last step."""
        episode = self.episodes[e]
        action = describe(self.options, int(self.table.actions[e]), self.table.levels[e])
        return {
            "step": int(episode["n_steps"]),
            "role": self.options.kind,
            "action": action if episode["n_steps"] else "",
            "reward": float(episode["total"]),
        }

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parts of observations, float32[..., D], as views."""
        return split(self.places, flat)

    def result(self, e: int, name: str) -> Result:
        """Return the Result of a sub-environment's episode up to now."""
        return result_of(self.simulation(e), system=name, offered_load=self.options.load)

    def copy(self) -> "Batch":
        """Return an independent copy."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Batch":
        twin = copy.copy(self)
        twin._memory = None
        twin.simulations = [copy.deepcopy(each, memo) for each in self.simulations]
        twin.episode_seeds, twin.n_begun = list(self.episode_seeds), list(self.n_begun)
        twin.table = Table(*(copy.copy(part) for part in self.table))
        twin._link_all()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"table": tuple(self.table), "_memory": None}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)
        self.table = Table(*attributes["table"])
        self._link_all()

    def _link_all(self) -> None:
        self._store()
        for e, simulation in enumerate(self.simulations):
            if simulation is not None:
                self.link(e)


def headroom_slots(simulation: Simulation) -> np.ndarray:
    """Return int64[n, 2]: the places in `params` of every policy's peak and decay."""
    slots = []
    for record, role in zip(simulation.state.policies, layout.ROLES, strict=True):
        policy, _ = simulation.decider(role)
        names = [param.name for param in policy.params] if policy else []
        for k, name in enumerate(HEADROOM_PARAMS):
            if name in names:
                slots.append((int(record["params_begin"]) + names.index(name), k))
    return np.array(slots, np.int64)


def is_in_order(columns: np.ndarray) -> bool:
    """Return whether columns, padded with -1, are those of a whole table in order."""
    return bool((columns == np.arange(len(columns))).all())
