"""What an environment is made of: its keyword arguments, checked once.

The cluster's config, the system that fills the decisions which the agent does not own, the agent's own policies over
both, the traces of episodes, reward, SLO and features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from servegym.baselines.features import (
    CLUSTER_FEATURES,
    INSTANCE_FEATURES,
    QUEUE_FEATURES,
    REQUEST_FEATURES,
)
from servegym.baselines.headroom import BY_TIER
from servegym.baselines.simulate import with_options
from servegym.baselines.system_file import check_tiers
from servegym.baselines.systems import System, find_system
from servegym.envs.agent import RULES
from servegym.envs.episode import KINDS, TERMS
from servegym.envs.episode_traces import EpisodeTraces, find_source
from servegym.envs.observation import PARTS
from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.policy import AGENT, Policy, find_policy
from servegym.simulator.seconds import to_ps
from servegym.simulator.slo import Slo
from servegym.traces import Trace, Workload
from servegym.traces.names import near_match

FEATURES = dict(
    zip(PARTS, (CLUSTER_FEATURES, INSTANCE_FEATURES, QUEUE_FEATURES, REQUEST_FEATURES), strict=True)
)
# The decisions that the agent takes, by kind of environment, and the kind of policy that its `fallback` names.
ROLES = {
    "dispatch": ("dispatch",),
    "admission": ("admission",),
    "ordering": ("queue",),
    "serve": ("queue", "dispatch"),
    "migration": ("migration",),
    "scaling": ("scaling",),
    "headroom": (),
}
FALLBACKS = {"dispatch": ("dispatch", "least-requests"), "ordering": ("queue", "fcfs")}
REWARDS = {"admission": "slo"}  # where it is not the latency
PULLING = ("ordering", "serve")  # requests wait at the gateway until an instance has room
HOLD_UNTIL_HORIZON_S = 1e6
LEAST_INTERVAL_S = 1e-6  # as ClusterConfig's
MOST_PAIRS = 2**31 - 1
HEADROOM_PARAMS = ("peak", "decay")
HEADROOM_HIGHEST = (0.5, 10.0)


@dataclass(frozen=True, eq=False)
class Options:
    """The checked options of one kind of environment; ValueError names what is wrong."""

    kind: str
    config: ClusterConfig
    system: System
    dispatch: Policy
    dispatch_params: Mapping[str, float]
    traces: EpisodeTraces
    reward: str
    slo: Slo
    features: Mapping[str, tuple[str, ...]]
    load: float | None
    horizon_s: float | None
    fallback: Policy | None
    most_pairs: int
    control_interval_s: float

    @property
    def roles(self) -> tuple[str, ...]:
        """The decisions that the agent takes."""
        return ROLES[self.kind]

    @property
    def n_instances(self) -> int:
        """The size of the fleet, absent instances included."""
        return self.config.most_instances

    @cached_property
    def n_queues(self) -> int:
        """The queues at the gateway."""
        if self.config.queue_by == "tenant":
            tenant = self.traces.draw(np.random.SeedSequence(0)).tenant
            return len(tenant.names) if tenant else 1
        return self.config.tiers if self.config.queue_by == "tier" else 1

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each part of an observation has."""
        return dict(zip(PARTS, (1, self.n_instances, self.n_queues, 1), strict=True))

    @property
    def n_observed(self) -> int:
        """The numbers of one observation."""
        return sum(self.rows[part] * len(self.features[part]) for part in PARTS)

    @property
    def n_actions(self) -> int:
        """The number of discrete actions; 1 for headroom, which has none."""
        m, k = self.n_instances, self.n_queues
        sizes = {
            "dispatch": m,
            "admission": 3,
            "ordering": k,
            "serve": k * m + 1,
            "migration": m * m + 1,
            "scaling": 3,
            "headroom": 1,
        }
        return sizes[self.kind]

    @property
    def columns(self) -> np.ndarray:
        """Return int64[parts, most]: the columns of the tables that are observed, -1 behind them."""
        most = max(len(table) for table in FEATURES.values())
        columns = np.full((len(PARTS), most), -1, np.int64)
        for row, part in zip(columns, PARTS, strict=True):
            known = [feature.name for feature in FEATURES[part]]
            row[: len(self.features[part])] = [known.index(name) for name in self.features[part]]
        return columns


class Arguments(TypedDict, total=False):
    """The keyword arguments of every environment; ValueError names the one at fault (DEFAULTS below)."""

    workload: Any  # name of a workload, path of its file or of a trace file, a Workload or a Trace
    load: float | None  # mean arrival rate as a multiple of what the cluster sustains
    rate_per_s: float | None  # or in requests/s; neither: as recorded
    arrivals: str | None  # a workload's arrival process: "poisson", "fitted", "gamma:cv=3"
    tier_mix: str | Sequence[float] | None  # draws tiers: a mix by name, or a share of each tier
    fixed: bool  # every episode of a seed plays the trace of its first
    episode_requests: int  # arrivals of an episode
    horizon_s: float | None  # when an episode is cut off; None: never
    cluster: ClusterConfig | Mapping[str, Any] | None  # or fields of one, "scenario" among them
    system: str | System | Policy  # takes the decisions that the agent does not own
    reward: str | None  # of TERMS; None: the kind's own
    slo: Slo | Mapping[str, float] | None  # limits of tier 0: ttft_s, tpot_s
    features: Mapping[str, Sequence[str]] | None  # what is observed, by part; None: all
    oracle: bool  # predicted lengths are the true ones
    fallback: str | None  # policy that acts for a masked action (dispatch, ordering)
    control_interval_s: float  # between ticks (migration, scaling, headroom)
    rule: str  # migration: whose rule says which request of a source moves
    moves_per_tick: int  # migration: pairs that the agent may choose at one tick


DEFAULTS: dict[str, Any] = {
    "workload": "azure-conv",
    "load": None,
    "rate_per_s": None,
    "arrivals": None,
    "tier_mix": None,
    "fixed": False,
    "episode_requests": 2000,
    "horizon_s": 600.0,
    "cluster": None,
    "system": "least-requests",
    "reward": None,
    "slo": None,
    "features": None,
    "oracle": False,
    "fallback": None,
    "control_interval_s": 1.0,
    "rule": "n-tier",
    "moves_per_tick": 1,
}
# Kinds that are about tiers have some, if neither the cluster nor whose requests it serves is given, on a cluster
# where they meet: with few seats requests wait at the gateway, with little KV headroom counts.
FEW_SEATS, LITTLE_KV = {"tiers": 4, "max_num_seqs": 32}, {"tiers": 4, "scenario": "tight"}
ABOUT_TIERS = {"ordering": FEW_SEATS, "serve": FEW_SEATS, "headroom": LITTLE_KV}
TIER_MIX = "enterprise"
LOADS = {"ordering": 1.05, "serve": 1.05}
SYSTEMS = {"headroom": "n-tier"}  # where it is not the default one
DEFAULT_LOAD = (
    0.95  # of a workload, if neither load nor rate_per_s is given; a trace plays as recorded
)
OF_TICKS = ("migration", "scaling", "headroom")
ONLY_FOR = {
    "fallback": tuple(FALLBACKS),
    "control_interval_s": OF_TICKS,
    "rule": ("migration",),
    "moves_per_tick": ("migration",),
}


def check_options(kind: str, given: Mapping[str, Any]) -> Options:
    """Return the options of an environment of a kind; ValueError naming field and value."""
    source, a = _with_defaults(kind, given)
    reward = (REWARDS.get(kind, TERMS[0])) if a["reward"] is None else a["reward"]
    _one_of("reward", reward, TERMS)
    _one_of("rule", a["rule"], RULES)
    _check_numbers(a)
    background = find_system(a["system"])
    config = background.configure(_config_of(a["cluster"]))
    check_tiers(background.name, config.tiers)
    if a["oracle"]:  # over what a system says
        config = with_options(config, {"estimator": "oracle", "estimator_params": {}})
    _check_no_other_agent(kind, config)
    config = _with_agent(kind, config, a)
    if kind == "headroom":
        _check_headroom(config, background)
    is_dispatching = "dispatch" in ROLES[kind]
    return Options(
        kind=kind,
        config=config,
        system=background,
        dispatch=find_policy("dispatch", AGENT) if is_dispatching else background.policy,
        dispatch_params={} if is_dispatching else background.params,
        traces=EpisodeTraces(
            config,
            source,
            episode_requests=a["episode_requests"],
            load=a["load"],
            rate_per_s=a["rate_per_s"],
            arrivals=a["arrivals"],
            tier_mix=a["tier_mix"],
            fixed=a["fixed"],
        ),
        reward=reward,
        slo=a["slo"] if isinstance(a["slo"], Slo) else _slo_of(a["slo"] or {}),
        features=_chosen_features(a["features"]),
        load=a["load"],
        horizon_s=a["horizon_s"],
        fallback=_fallback_of(kind, a["fallback"]),
        most_pairs=a["moves_per_tick"],
        control_interval_s=a["control_interval_s"],
    )


def _with_defaults(kind: str, given: Mapping[str, Any]) -> tuple[Trace | Workload, dict[str, Any]]:
    """Return what is played, and all arguments; ValueError for one that the kind has not."""
    for name, value in given.items():
        _one_of("argument", name, tuple(DEFAULTS))
        if kind not in ONLY_FOR.get(name, KINDS):
            raise ValueError(
                f"{name} = {value!r}; {kind} has none, only {', '.join(ONLY_FOR[name])}"
            )
    system = SYSTEMS.get(kind, DEFAULTS["system"])
    arguments: dict[str, Any] = DEFAULTS | {"system": system} | dict(given)
    source = find_source(arguments["workload"])
    if isinstance(source, Workload):
        arguments |= _defaults_of_workload(kind, given, arguments["rate_per_s"])
    return source, arguments


def _defaults_of_workload(
    kind: str, given: Mapping[str, Any], rate_per_s: float | None
) -> dict[str, Any]:
    """Return what goes without saying where requests are drawn."""
    defaults: dict[str, Any] = {}
    is_all_ours = kind in ABOUT_TIERS and not given.keys() & {"cluster", "tier_mix"}
    if is_all_ours:
        defaults |= {"cluster": ABOUT_TIERS[kind], "tier_mix": TIER_MIX}
    if "load" not in given and rate_per_s is None:
        defaults["load"] = LOADS.get(kind, DEFAULT_LOAD) if is_all_ours else DEFAULT_LOAD
    return defaults


def _check_numbers(a: Mapping[str, Any]) -> None:
    horizon_s, most, interval_s = a["horizon_s"], a["moves_per_tick"], a["control_interval_s"]
    if horizon_s is not None and to_ps(horizon_s, "horizon_s") == 0:
        raise ValueError(f"horizon_s = {horizon_s}; must be finite and > 0, or None")
    to_ps(interval_s, "control_interval_s")
    if interval_s < LEAST_INTERVAL_S:
        raise ValueError(f"control_interval_s = {interval_s}; must be >= {LEAST_INTERVAL_S}")
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_PAIRS:
        raise ValueError(f"moves_per_tick = {most!r}; must be a whole number in 1 .. {MOST_PAIRS}")


def _check_headroom(config: ClusterConfig, system: System) -> None:
    """ValueError unless some policy has headroom to set."""
    parts = [(system.policy, system.params)]
    for kind, field in DECISIONS.items():
        policy = config.policy_of(kind)
        if policy is not None and policy.params:
            parts.append((policy, getattr(config, f"{field}_params")))
    names = [
        p.name for policy, given in parts if not _is_binary(policy, given) for p in policy.params
    ]
    if not any(name in names for name in HEADROOM_PARAMS):
        raise ValueError(
            f"system = {system.name!r}; no part of it has headroom (peak, decay): try 'n-tier'"
        )


def _is_binary(policy: Policy, given: Mapping[str, float]) -> bool:
    """Return whether a policy has Llumnix's reserve, or nothing, where it could have headroom by tier."""
    switches = [p.default for p in policy.params if p.name == "headroom" and p.high == BY_TIER]
    return bool(switches) and given.get("headroom", switches[0]) != BY_TIER


def _slo_of(limits: Mapping[str, float]) -> Slo:
    for name in limits:
        _one_of("limit in slo", name, ("ttft_s", "tpot_s"))
    return Slo(**limits)


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; {near_match(str(value), known)}")


def _config_of(cluster: ClusterConfig | Mapping[str, Any] | None) -> ClusterConfig:
    return (
        cluster if isinstance(cluster, ClusterConfig) else with_options(None, dict(cluster or {}))
    )


def _check_no_other_agent(kind: str, config: ClusterConfig) -> None:
    """ValueError for an agent where this kind of environment asks nobody."""
    for role, field in DECISIONS.items():
        if getattr(config, field) == AGENT and role not in ROLES[kind]:
            raise ValueError(f"{field} = {AGENT!r}; {kind} does not ask anybody about that")


def _with_agent(kind: str, config: ClusterConfig, a: Mapping[str, Any]) -> ClusterConfig:
    """Return the config with the agent in its places, over what the system says."""
    changes: dict[str, Any] = {}
    for role in ROLES[kind]:
        if role != "dispatch":
            field = DECISIONS[role]
            changes |= {field: AGENT, f"{field}_params": {}}
    if kind in PULLING:
        changes["max_local_waiting"] = 0
    if kind == "migration":
        changes["migration_params"] = {"rule": RULES.index(a["rule"])}
        changes["rebalance_interval_s"] = a["control_interval_s"]
    if kind == "scaling":
        changes["scaling_interval_s"] = a["control_interval_s"]
    if a["horizon_s"] is not None:  # whoever holds to the end is cut off there
        changes["max_hold_s"] = HOLD_UNTIL_HORIZON_S
    return with_options(config, changes)


def _chosen_features(
    chosen: Mapping[str, Sequence[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """Return the names of the observed features by part: all of a part that is not named."""
    if not isinstance(chosen, Mapping | None):
        raise ValueError(f"features = {chosen!r}; must be {{part: names}} of {', '.join(PARTS)}")
    for part in chosen or {}:
        _one_of("part of features", part, PARTS)
    for part, given in (chosen or {}).items():
        if isinstance(given, str):
            raise ValueError(f"features[{part!r}] = {given!r}; must be a list of names")
    names = {}
    for part, table in FEATURES.items():
        known = [feature.name for feature in table]
        names[part] = tuple((chosen or {}).get(part, known))
        for name in names[part]:
            _one_of(f"{part} feature", name, known)
        if len(set(names[part])) < len(names[part]):
            raise ValueError(f"features[{part!r}] = {list(names[part])}; names one twice")
    if not any(names.values()):
        raise ValueError("features: all parts are empty; an observation needs one")
    return names


def _fallback_of(kind: str, name: str | None) -> Policy | None:
    if kind not in FALLBACKS:
        return None
    if name == AGENT:
        raise ValueError(f"fallback = {AGENT!r}; must be a policy that acts for the agent")
    policy_kind, default = FALLBACKS[kind]
    return find_policy(policy_kind, default if name is None else name)
