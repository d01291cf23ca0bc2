"""Search spaces: which settings of a system are searched, over what, checked against what its policies declare.

    peak=0:1    migration.threshold=.01:10:log    form=exponential,linear    tiers=1:10    order=fcfs,sjf    peak

A dimension's key is a setting as behind the colon of a system's name (systems.py), or `tiers`, the cluster's. The
range must lie in the one that every part declares that takes the key; without a range it is the declared one. Whole
parameters give whole numbers, those with named values (labels.py) take names.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from servegym.baselines.system_fields import FIELDS, field_value
from servegym.baselines.system_file import check_tiers, tiers_of, with_settings
from servegym.baselines.systems import PARTS, System, find_system, names_of
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Param
from servegym.traces.names import near_match
from servegym.tuning.labels import labels_of

Value = float | int | str
TIERS = "tiers"
MOST_TIERS = 10  # as in Beyond Binary Priorities
MOST_DECLARED = 1e6  # a declared range wider than this is no range to search


@dataclass(frozen=True)
class Dimension:
    """One setting that is searched. kind: how; low, high, is_log of a number; choices of a choice.

    default: what the paper, or the policy, prescribes; None if it depends on the trace or lies outside. numbers: what a
    choice's name means in the system's text, if it is not itself.
    """

    key: str
    kind: Literal["number", "whole", "choice"]
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    choices: tuple[str, ...] = ()
    default: Value | None = None
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The range, as it is written on the command line."""
        if self.kind == "choice":
            return f"{self.key}={','.join(self.choices)}"
        return f"{self.key}={self.low:g}:{self.high:g}{':log' if self.is_log else ''}"

    def setting(self, value: Value) -> str:
        """Return a value as it stands in a system's text."""
        if self.numbers:
            return str(self.numbers[self.choices.index(str(value))])
        return str(int(value)) if self.kind == "whole" else str(value)

    def has(self, value: Value | None) -> bool:
        """Return whether a value can be searched."""
        if value is None:
            return False
        if self.kind == "choice":
            return str(value) in self.choices
        return self.low <= float(value) <= self.high


def read_space(system: str, params: Iterable[str], config: ClusterConfig) -> tuple[Dimension, ...]:
    """Return the dimensions of "key=range" texts.

    ValueError for an unknown key, a bad range, a key given twice, or a system's file that is for other tiers.
    """
    base = find_system(system)
    check_tiers(system, config.tiers)
    dimensions: list[Dimension] = []
    for text in params:
        key, equals, wanted = (part.strip() for part in text.partition("="))
        if any(each.key == key for each in dimensions):
            raise ValueError(f"--param {key} is given twice")
        if equals and not wanted:
            raise ValueError(f"--param {text!r} has no range; write {key}=LOW:HIGH or {key}=A,B")
        if key == TIERS and tiers_of(system) is not None:
            raise ValueError(f"--param {key}: {system} sets cluster.tiers; leave one of them out")
        dimensions.append(dimension_of(base, key, wanted, config))
    if not dimensions:
        raise ValueError("nothing to search; give --param KEY=LOW:HIGH")
    return tuple(dimensions)


def dimension_of(base: System, key: str, wanted: str, config: ClusterConfig) -> Dimension:
    """Return the dimension of a key over a range, "" for all that is declared."""
    if key == TIERS:
        declared = Param(TIERS, config.tiers, "tiers", 1, MOST_TIERS, is_whole=True)
        return ranged(declared, key, wanted, float(config.tiers), base.name)
    if key in PARTS or key in FIELDS:
        return of_field(base, key, wanted, config)
    takers = takers_of(base, key)
    name = key.rpartition(".")[2]
    declared = [next(p for p in base.parts[part].params if p.name == name) for part in takers]
    own = base.params_of(takers[0]).get(name, declared[0].default)
    default = None if callable(own) else float(own)
    return ranged(joint(declared), key, wanted, default, base.name)


def takers_of(base: System, key: str) -> list[str]:
    """Return the parts of a system that take a parameter; ValueError with the near match if none does."""
    part, dot, name = key.rpartition(".")
    known = [
        each
        for each, policy in base.parts.items()
        if name in names_of(policy) and (not dot or each == part)
    ]
    if not known:
        params = {name: None for policy in base.parts.values() for name in names_of(policy)}
        keys = (
            [f"{part}.{each}" for each in names_of(base.parts[part])] if part in base.parts else []
        )
        offered = keys or [*params, *PARTS, *FIELDS, TIERS]
        raise ValueError(f"{base.name}: unknown parameter {key!r}; {near_match(key, offered)}")
    return known


def joint(declared: list[Param]) -> Param:
    """Return one parameter with the range that all of several declare."""
    first = declared[0]
    low, high = max(p.low for p in declared), min(p.high for p in declared)
    return Param(
        first.name, first.default, first.unit, low, high, any(p.is_whole for p in declared)
    )


def ranged(declared: Param, key: str, wanted: str, default: float | None, system: str) -> Dimension:
    """Return the dimension of a declared parameter over the range asked for."""
    labels = labels_of(declared)
    if labels and (not wanted or ":" not in wanted):
        return named(labels, key, wanted, default, system)
    if "," in wanted:
        raise ValueError(
            f"{system}: {key} = {wanted!r}; must be LOW:HIGH, its values have no names"
        )
    low, high, is_log = bounds_of(declared, key, wanted, system)
    for value in (low, high):
        declared.check(value, system)
    kind = "whole" if declared.is_whole else "number"
    inside = default if default is not None and low <= default <= high else None
    value = int(inside) if inside is not None and kind == "whole" else inside
    return Dimension(key, kind, low, high, is_log, default=value)


def named(
    labels: Mapping[str, int], key: str, wanted: str, default: float | None, system: str
) -> Dimension:
    """Return the choice among values that have names; they may be given by name or number."""
    names = {str(number): name for name, number in labels.items()}
    texts = [part.strip() for part in wanted.split(",")] if wanted else list(labels)
    choices = tuple(names.get(text, text) for text in texts)
    for choice in choices:
        if choice not in labels:
            raise ValueError(f"{system}: {key} = {choice!r}; {near_match(choice, labels)}")
    check_distinct(key, choices)
    own = names.get(str(int(default))) if default is not None else None
    numbers = tuple(labels[choice] for choice in choices)
    return Dimension(
        key, "choice", choices=choices, default=own if own in choices else None, numbers=numbers
    )


def bounds_of(declared: Param, key: str, wanted: str, system: str) -> tuple[float, float, bool]:
    """Return low, high and whether on a log scale; ValueError if the text is no such range."""
    if not wanted:
        if declared.high - declared.low > MOST_DECLARED:
            raise ValueError(
                f"{system}: {key} may be anything in [{declared.low:g}, {declared.high:g}]; "
                f"give the range to search: {key}=LOW:HIGH"
            )
        return float(declared.low), float(declared.high), False
    parts = wanted.split(":")
    is_log = len(parts) == 3 and parts[2].strip() == "log"
    try:
        low, high = float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)) or len(parts) != 2 + is_log:
        raise ValueError(f"{system}: {key} = {wanted!r}; must be LOW:HIGH or LOW:HIGH:log")
    if not low < high:
        raise ValueError(f"{system}: {key} = {wanted!r}; LOW must be less than HIGH")
    if is_log and low <= 0:
        raise ValueError(f"{system}: {key} = {wanted!r}; on a log scale LOW must be > 0")
    return low, high, is_log


def of_field(base: System, key: str, wanted: str, config: ClusterConfig) -> Dimension:
    """Return the dimension of another policy in a part, or of a field of the cluster that a system may set."""
    now = base.dispatch if key == "dispatch" else getattr(base.configure(config), key)
    if key not in PARTS and ":" in wanted:
        is_whole = isinstance(now, int) and not isinstance(now, bool)
        declared = Param(key, 0.0, "", -math.inf, math.inf, is_whole)
        low, high, is_log = bounds_of(declared, key, wanted, base.name)
        for value in (low, high):
            declared.check(value, base.name)
            field_value(key, str(int(value)) if is_whole else str(value))
        is_inside = isinstance(now, int | float) and low <= now <= high
        inside = now if is_inside else None
        return Dimension(key, "whole" if is_whole else "number", low, high, is_log, default=inside)
    choices = tuple(part.strip() for part in wanted.split(",") if part.strip())
    if not choices:
        raise ValueError(f"{base.name}: {key} has no range of its own; write {key}=A,B")
    check_distinct(key, choices)
    for choice in choices:
        find_system(with_settings(base.name, f"{key}={choice}"))
    own = "none" if now is None else str(now)
    return Dimension(key, "choice", choices=choices, default=own if own in choices else None)


def check_distinct(key: str, choices: tuple[str, ...]) -> None:
    """ValueError unless there are two choices or more, none of them twice."""
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"{key} = {','.join(choices)}; must be two different choices or more")
