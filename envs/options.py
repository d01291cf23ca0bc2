"""What an environment is made of: its keyword arguments, checked once.

The cluster's config, the system that fills the decisions which the agent does not own, the agent's own policies over
both, the traces of episodes, reward, SLO and features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servegym.baselines.features import (
    CLUSTER_FEATURES,
    INSTANCE_FEATURES,
    QUEUE_FEATURES,
    REQUEST_FEATURES,
)
from servegym.baselines.simulate import with_options
from servegym.baselines.systems import System, find_system
from servegym.envs.agent import RULES
from servegym.envs.episode import KINDS, TERMS
from servegym.envs.episode_traces import EpisodeTraces
from servegym.envs.observation import PARTS
from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.policy import AGENT, Policy, find_policy
from servegym.simulator.slo import Slo
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
PULLING = ("ordering", "serve")  # requests wait at the gateway until an instance has room
HOLD_UNTIL_HORIZON_S = 1e6


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
    horizon_s: float | None
    fallback: Policy | None
    rule: str
    most_pairs: int
    control_interval_s: float

    @property
    def n_instances(self) -> int:
        """The size of the fleet, absent instances included."""
        return self.config.most_instances

    @property
    def n_queues(self) -> int:
        """The queues at the gateway."""
        if self.config.queue_by == "tenant":
            return self.traces.n_tenants
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
        sizes = (m, 3, k, k * m + 1, m * m + 1, 3, 1)
        return dict(zip(KINDS, sizes, strict=True))[self.kind]

    @property
    def columns(self) -> np.ndarray:
        """Return int64[parts, most]: the columns of the tables that are observed, -1 behind them."""
        most = max(len(table) for table in FEATURES.values())
        columns = np.full((len(PARTS), most), -1, np.int64)
        for row, part in zip(columns, PARTS, strict=True):
            known = [feature.name for feature in FEATURES[part]]
            row[: len(self.features[part])] = [known.index(name) for name in self.features[part]]
        return columns


def check_options(
    kind: str,
    *,
    workload: Any,
    load: float | None,
    rate_per_s: float | None,
    arrivals: str,
    tier_mix: str | None,
    fixed: bool,
    episode_requests: int,
    horizon_s: float | None,
    cluster: ClusterConfig | Mapping[str, Any] | None,
    system: str | System | Policy,
    reward: str,
    slo: Slo | Mapping[str, float] | None,
    features: Mapping[str, Sequence[str]] | None,
    oracle: bool,
    fallback: str | None,
    control_interval_s: float,
    rule: str,
    moves_per_tick: int,
) -> Options:
    """Return the options of an environment of a kind; ValueError naming field and value."""
    _one_of("reward", reward, TERMS)
    _one_of("rule", rule, RULES)
    if horizon_s is not None and not (np.isfinite(horizon_s) and horizon_s > 0):
        raise ValueError(f"horizon_s = {horizon_s}; must be finite and > 0, or None")
    if not isinstance(moves_per_tick, int) or moves_per_tick < 1:
        raise ValueError(f"moves_per_tick = {moves_per_tick!r}; must be a whole number >= 1")
    background = find_system(system)
    config = background.configure(_config_of(cluster, oracle))
    config = _with_agent(kind, config, control_interval_s, rule, horizon_s)
    is_dispatching = "dispatch" in ROLES[kind]
    dispatch = find_policy("dispatch", AGENT) if is_dispatching else background.policy
    return Options(
        kind=kind,
        config=config,
        system=background,
        dispatch=dispatch,
        dispatch_params={} if is_dispatching else background.params,
        traces=EpisodeTraces(
            workload=workload,
            config=config,
            episode_requests=episode_requests,
            load=load,
            rate_per_s=rate_per_s,
            arrivals=arrivals,
            tier_mix=tier_mix,
            fixed=fixed,
        ),
        reward=reward,
        slo=slo if isinstance(slo, Slo) else Slo(**(slo or {})),
        features=_chosen_features(features),
        horizon_s=horizon_s,
        fallback=_fallback_of(kind, fallback),
        rule=rule,
        most_pairs=moves_per_tick,
        control_interval_s=control_interval_s,
    )


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; {near_match(str(value), known)}")


def _config_of(cluster: ClusterConfig | Mapping[str, Any] | None, oracle: bool) -> ClusterConfig:
    config = cluster if isinstance(cluster, ClusterConfig) else with_options(None, dict(cluster or {}))
    return with_options(config, {"estimator": "oracle", "estimator_params": {}}) if oracle else config


def _with_agent(
    kind: str, config: ClusterConfig, interval_s: float, rule: str, horizon_s: float | None
) -> ClusterConfig:
    """Return the config with the agent in its places, over what the system says."""
    changes: dict[str, Any] = {}
    for role in ROLES[kind]:
        if role != "dispatch":
            field = DECISIONS[role]
            changes |= {field: AGENT, f"{field}_params": {}}
    if kind in PULLING:
        changes["max_local_waiting"] = 0
    if kind == "migration":
        changes["migration_params"] = {"rule": RULES.index(rule)}
        changes["rebalance_interval_s"] = interval_s
    if kind == "scaling":
        changes["scaling_interval_s"] = interval_s
    if horizon_s is not None:  # whoever holds to the end is cut off there
        changes["max_hold_s"] = HOLD_UNTIL_HORIZON_S
    return with_options(config, changes)


def _chosen_features(
    chosen: Mapping[str, Sequence[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """Return the names of the observed features by part: all of a part that is not named."""
    for part in chosen or {}:
        _one_of("part of features", part, PARTS)
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
        if name is not None:
            raise ValueError(f"fallback = {name!r}; {kind} has its own: it names none")
        return None
    policy_kind, default = FALLBACKS[kind]
    return find_policy(policy_kind, default if name is None else name)
