"""BaselinePolicy: a hand-written policy in the place of an agent, with the `predict` of Stable-Baselines3.

    policy = BaselinePolicy("power-of-two:d=4", env)
    actions, _ = policy.predict(observation)

It looks at the environment's state, not at observations: it is asked as the engine would ask it, with memory and random
stream of its own, so that an episode it plays is its native run, request by request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servegym.baselines.system_file import check_tiers
from servegym.baselines.systems import System, find_system, parsed_number, settings_in
from servegym.envs.actions import action_of
from servegym.envs.agent import N_PAIRS
from servegym.envs.batch import HEADROOM_PARAMS, Batch
from servegym.envs.options import Options
from servegym.simulator.build import STREAM_KEYS, random_stream
from servegym.simulator.calls import (
    call_admission,
    call_dispatch,
    call_migration,
    call_queue,
    call_scaling,
    state_at,
)
from servegym.simulator.config import DECISIONS
from servegym.simulator.gateway import first_ready, set_router, view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Policy, find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import MIGRATION, Request
from servegym.simulator.views import ACCEPT, HOLD, has_taker, queue_head

POLICY_KINDS = {
    "dispatch": "dispatch",
    "admission": "admission",
    "ordering": "queue",
    "serve": "queue",
    "migration": "migration",
    "scaling": "scaling",
}


@dataclass(frozen=True)
class Decider:
    """Who takes one decision, and the parameters that are set; no policy: the engine's own rule."""

    policy: Policy | None
    params: Mapping[str, float]


class BaselinePolicy:
    """Plays a baseline in an environment, single or vector (also Stable-Baselines3's VecEnv around either).

    baseline: a policy of the kind that the environment asks for ("slo-shed", "weighted"), with parameters behind a
    colon, or a system, of which the parts that the agent owns are taken. For Headroom: a system's peak and decay.
    ValueError if there is no such part. A fork of the environment needs a new one.
    """

    def __init__(self, baseline: str | Policy | System, env: Any) -> None:
        self.env = env
        self.options: Options = self._places()[0][0].options
        self.deciders = deciders_of(self.options, baseline)
        self._players: dict[tuple[int, int], _Player] = {}
        policies = [decider.policy for decider in self.deciders.values() if decider.policy]
        self._uses_what_if = any(policy.uses_what_if for policy in policies)
        self._allow_what_if()

    def predict(
        self,
        observation: Any = None,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Return the action for every sub-environment (one without the leading axis, as its observation) and state."""
        actions = []
        for k, (batch, e) in enumerate(self._places()):
            player = self._players.get((k, e))
            if player is None or not player.plays(batch, batch.n_begun[e]):
                self._allow_what_if()  # `restore` may have brought a batch from before
                player = self._players[k, e] = _Player(self.deciders, batch, e)
            actions.append(player.act(batch, e))
        stacked = np.array(actions)
        return (stacked if self._is_stacked(observation) else stacked[0]), state

    def _allow_what_if(self) -> None:
        if self._uses_what_if:
            for batch in {id(batch): batch for batch, _ in self._places()}.values():
                batch.allow_what_if()

    def _places(self) -> list[tuple[Batch, int]]:
        """Return every sub-environment as a batch and its place there."""
        inner = self.env.envs if hasattr(self.env, "envs") else [self.env]
        batches = [
            each.unwrapped.batch if hasattr(each, "unwrapped") else each.batch for each in inner
        ]
        return [(batch, e) for batch in batches for e in range(len(batch))]

    def _is_stacked(self, observation: Any) -> bool:
        """Return whether an observation is of a vector of environments: several, or one with a leading axis."""
        if observation is None or len(self._places()) > 1:
            return len(self._places()) > 1
        if not isinstance(observation, dict):
            return np.ndim(observation) > 1
        return np.ndim(next(iter(observation.values()))) > 1


def deciders_of(options: Options, baseline: str | Policy | System) -> dict[str, Decider]:
    """Return who takes each decision that the agent owns, by role; for headroom all parts of the system."""
    kind = POLICY_KINDS.get(options.kind)
    own = _named_policy(kind, baseline)
    if own is not None and kind != "dispatch":
        assert kind is not None
        system = options.system
        deciders = {kind: own}
    else:
        system = find_system(baseline)
        check_tiers(system.name, options.config.tiers)
        deciders = {}
    for role in options.roles:
        if role == "dispatch":
            deciders[role] = Decider(system.policy, system.params)
        elif role not in deciders:
            deciders[role] = _part_of(system, role)
    if options.kind == "headroom":
        deciders = {part: Decider(p, system.params_of(part)) for part, p in system.parts.items()}
    return deciders


def _named_policy(kind: str | None, baseline: str | Policy | System) -> Decider | None:
    """Return the policy of a kind that is meant by name, with its parameters, or given as such; None if none is."""
    if isinstance(baseline, Policy):
        return Decider(baseline, {}) if baseline.kind == kind else None
    if not isinstance(baseline, str) or kind is None:
        return None
    name, _, text = baseline.partition(":")
    if name not in policy_names(kind):
        return None
    policy = find_policy(kind, name)
    pairs = settings_in(baseline, text, is_swap=False)
    params = {key: parsed_number(baseline, key, value) for key, value in pairs}
    policy.check_params(params)
    return Decider(policy, params)


def _part_of(system: System, role: str) -> Decider:
    field = DECISIONS[role]
    name = system.settings.get(field)
    if name is None:
        if role == "queue":
            return Decider(None, {})  # the least key over all heads
        known = ", ".join(policy_names(role))
        raise ValueError(f"{system.name!r} has no {role} policy; there are {known}")
    return Decider(find_policy(role, name), system.params_of(field))


@dataclass
class _Asked:
    """A policy with what it needs to be asked."""

    address: int
    params: np.ndarray
    memory: np.ndarray
    stream: np.ndarray


class _Player:
    """The baseline in one episode of one sub-environment."""

    def __init__(self, deciders: Mapping[str, Decider], batch: Batch, e: int) -> None:
        self.batch, self.episode = batch, batch.n_begun[e]
        self.kind = batch.options.kind
        self.deciders = deciders
        simulation, seed = batch.simulation(e), batch.episode_seeds[e]
        self.asked = {
            role: _asked(decider, role, simulation, seed)
            for role, decider in deciders.items()
            if decider.policy is not None and self.kind != "headroom"
        }
        self.pairs: list[int] = []  # migration: the actions that are left of this tick

    def plays(self, batch: Batch, episode: int) -> bool:
        """Return whether this is the player of an episode of a batch; `restore` brings another batch."""
        return self.batch is batch and self.episode == episode

    def act(self, batch: Batch, e: int) -> Any:
        """Return the action for the decision that waits; any when the episode is over."""
        if self.kind == "headroom":
            return action_of(self._levels(batch.simulation(e)))
        if batch.episodes["is_over"][e]:
            return 0
        pointer = int(batch.episodes["state_pointer"][e])
        action = getattr(self, f"_{self.kind}")(batch, e, pointer)
        return int(action)

    def _dispatch(self, batch: Batch, e: int, pointer: int) -> int:
        r = int(batch.simulation(e).state.shared[0]["asked_request"])
        i = self._instance_for(pointer, r)
        if i == HOLD:
            raise ValueError(
                "the dispatch policy holds the request; Dispatch has no action for that"
            )
        return i

    def _instance_for(self, pointer: int, r: int) -> int:
        a = self.asked["dispatch"]
        return ask_dispatch(pointer, a.address, r, a.params, a.memory, a.stream)

    def _admission(self, batch: Batch, e: int, pointer: int) -> int:
        r = int(batch.simulation(e).state.shared[0]["asked_request"])
        a = self.asked["admission"]
        answer = ask_admission(pointer, a.address, r, a.params, a.memory, a.stream)
        return {ACCEPT: 0, HOLD: 1}.get(answer, 2)

    def _queue(self, pointer: int) -> int:
        a = self.asked.get("queue")
        if a is None:
            return ask_order(pointer)
        return ask_queue(pointer, a.address, a.params, a.memory, a.stream)

    def _ordering(self, batch: Batch, e: int, pointer: int) -> int:
        q = self._queue(pointer)
        if q == HOLD:
            raise ValueError("the queue policy holds; Ordering has no action for that")
        return q

    def _serve(self, batch: Batch, e: int, pointer: int) -> int:
        wait, m = batch.options.n_actions - 1, batch.options.n_instances
        q = self._queue(pointer)
        r = HOLD if q == HOLD else int(taken_head(pointer, q))
        i = HOLD if r == HOLD else self._instance_for(pointer, r)
        return wait if i == HOLD else q * m + i

    def _migration(self, batch: Batch, e: int, pointer: int) -> int:
        simulation, m = batch.simulation(e), batch.options.n_instances
        begin = int(simulation.state.policies[MIGRATION]["memory_begin"])
        if simulation.state.memory[begin + N_PAIRS] == 0:  # a new tick
            a = self.asked["migration"]
            moves = np.zeros_like(simulation.state.ordered)
            n = ask_migration(pointer, a.address, moves, a.params, a.memory, a.stream)
            actions = (moves[:n, 0] * m + moves[:n, 1]).tolist()
            self.pairs = list(dict.fromkeys(actions))
        return self.pairs.pop(0) if self.pairs else m * m

    def _scaling(self, batch: Batch, e: int, pointer: int) -> int:
        a = self.asked["scaling"]
        action = ask_scaling(pointer, a.address, a.params, a.memory, a.stream) + 1
        return action if batch.table.masks[e, action] else 1  # the engine ignores what cannot be

    def _levels(self, simulation: Simulation) -> list[float]:
        for decider in self.deciders.values():
            assert decider.policy is not None
            names = [param.name for param in decider.policy.params]
            if all(name in names for name in HEADROOM_PARAMS):
                values = decider.policy.param_values(decider.params, simulation.trace)
                return [float(values[names.index(name)]) for name in HEADROOM_PARAMS]
        raise ValueError("no part of the system has headroom (peak, decay); try 'n-tier'")


def _asked(decider: Decider, role: str, simulation: Simulation, seed: int) -> _Asked:
    policy = decider.policy
    assert policy is not None
    return _Asked(
        policy.address,
        policy.param_values(decider.params, simulation.trace),
        np.zeros(policy.memory_size(simulation.config)),
        np.array([random_stream(seed, STREAM_KEYS[role])], np.uint64),
    )


@kernel
def ask_dispatch(pointer, address, r, params, memory, stream):
    """Return the dispatch policy's instance for request r, which its router decides."""
    state = state_at(pointer)
    set_router(state, r)
    request = Request(state.requests, np.int64(r))
    return call_dispatch(address, view_of(state), request, params, memory, stream)


@kernel
def ask_admission(pointer, address, r, params, memory, stream):
    """Return the admission policy's answer about request r."""
    state = state_at(pointer)
    request = Request(state.requests, np.int64(r))
    return call_admission(address, view_of(state), request, params, memory, stream)


@kernel
def ask_queue(pointer, address, params, memory, stream):
    """Return the queue policy's queue, or HOLD."""
    return call_queue(address, view_of(state_at(pointer)), params, memory, stream)


@kernel
def ask_order(pointer):
    """Return the ready queue whose head comes first in the order of the cluster."""
    return first_ready(state_at(pointer), False)


@kernel
def taken_head(pointer, q):
    """Return the head of queue q, HOLD if nobody accepts it."""
    state = state_at(pointer)
    head = queue_head(view_of(state), q)
    set_router(state, np.int64(head.index))
    return np.int64(head.index) if has_taker(view_of(state), head) else np.int64(HOLD)


@kernel
def ask_migration(pointer, address, moves, params, memory, stream):
    """Return the number of moves that the migration policy writes."""
    return call_migration(address, view_of(state_at(pointer)), moves, params, memory, stream)


@kernel
def ask_scaling(pointer, address, params, memory, stream):
    """Return the scaling policy's answer: -1, 0 or 1."""
    return call_scaling(address, view_of(state_at(pointer)), params, memory, stream)
