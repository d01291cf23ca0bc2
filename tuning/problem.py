"""A tuning problem: what is searched, on what, for what; all that a process needs to play a candidate.

It is plain data: it is sent to worker processes, and stored with its study, so that a study is only ever continued with
the problem that it was begun with. The number of trials is no part of it: a study may be prolonged.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from servegym.baselines.system_file import with_settings
from servegym.tuning.spaces import TIERS, Dimension, Value

Params = Mapping[str, Value]


@dataclass(frozen=True)
class Problem:
    """What a study tunes.

    system: searched with `dimensions` set. cluster: fields of ClusterConfig, as JSON. trace: a file; else `workload` is
    drawn from. seeds, seed: how many traces a trial plays, and the first, which the sampler draws from, too; `held_out`
    more follow them. prune_p: p value below which a trial is given up, 0 never.
    """

    study: str
    system: str
    dimensions: tuple[Dimension, ...]
    objective: str
    workload: str
    trace: str | None
    cluster: dict[str, Any]
    load: float | None
    rate_per_s: float | None
    n_requests: int
    arrivals: str | None
    tier_mix: str | None
    horizon_s: float | None
    seeds: int
    seed: int
    held_out: int
    sampler: str
    prune_p: float

    @property
    def tuning_seeds(self) -> list[int]:
        """The seeds that every trial plays."""
        return list(range(self.seed, self.seed + self.seeds))

    @property
    def held_out_seeds(self) -> list[int]:
        """Seeds that no trial plays: what the result is judged on."""
        first = self.seed + self.seeds
        return list(range(first, first + self.held_out))

    @property
    def defaults(self) -> dict[str, Value] | None:
        """The default of every dimension; None if one cannot be searched (outside its range, or the trace's)."""
        values = {each.key: each.default for each in self.dimensions}
        is_inside = all(each.has(each.default) for each in self.dimensions)
        return {k: v for k, v in values.items() if v is not None} if is_inside else None

    def system_text(self, params: Params) -> str:
        """Return the system's name with a candidate's settings; the number of tiers is the cluster's."""
        settings = self.settings(params)
        return with_settings(self.system, ",".join(f"{k}={v}" for k, v in settings.items()))

    def settings(self, params: Params) -> dict[str, str]:
        """Return a candidate's settings as text, without the number of tiers."""
        return {
            each.key: each.setting(params[each.key])
            for each in self.dimensions
            if each.key != TIERS and each.key in params
        }

    def tiers(self, params: Params) -> int:
        """Return the number of tiers that a candidate plays with."""
        return int(params.get(TIERS, self.cluster["tiers"]))

    def to_json(self) -> str:
        """Return it as text, the same for the same problem."""
        return json.dumps(asdict(self), sort_keys=True)


def changed_fields(stored: str, now: Problem) -> list[str]:
    """Return what differs between a stored problem and one of now, "field: then, now"; [] if nothing does."""
    then, own = json.loads(stored), json.loads(now.to_json())
    changes = []
    for name in (each.name for each in fields(Problem)):
        before, after = then.get(name), own[name]
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            keys = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            changes += [f"{key}: {before.get(key)!r}, now {after.get(key)!r}" for key in keys]
        elif name == "dimensions":
            changes.append(f"dimensions: {shown(before)}, now {shown(after)}")
        else:
            changes.append(f"{name}: {before!r}, now {after!r}")
    return changes


def shown(dimensions: Any) -> str:
    """Return stored dimensions as they are written on the command line."""
    return " ".join(str(Dimension(**each)) for each in dimensions)
