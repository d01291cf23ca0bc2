"""Systems: what a comparison runs under one name: a dispatch policy, and the other parts it prescribes.

    find_system("n-tier")                           find_system("n-tier:peak=.3")
    find_system("n-tier:migration=none")            find_system("n-tier:migration.threshold=.5")
    find_system("least-requests:order=sjf")         find_system(my_policy)
    find_system("tuned.yaml")                       (system_file.py)
    find_system("learned:FILE")                     find_system("learned:FILE,estimator=oracle")

A system is one of SYSTEMS, any registered dispatch policy by its own name, or a checkpoint. What it sets goes over the
user's config, and the text behind the colon (of a checkpoint, behind the file) over both: `part=policy` swaps a part
("none": nobody), `field=value` sets a field, `param=value` sets the parameter in every part that declares it,
`part.param=value` in one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from servegym.baselines.learned import ARCHITECTURES, LearnedPolicy, shipped_names
from servegym.baselines.learned.architectures import FAMILY, load_checkpoint
from servegym.baselines.system_fields import FIELDS, field_value
from servegym.baselines.system_file import is_system_file, name_of, read_system_text, with_settings
from servegym.baselines.system_table import SYSTEMS
from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.policy import BUILT_IN_ORDERS, Policy, find_policy, policy_names
from servegym.traces.names import near_match

PARTS = {"dispatch": "dispatch"} | {field: kind for kind, field in DECISIONS.items()}  # part: kind


@dataclass(frozen=True)
class System:
    """A dispatch policy with its parameters, and what else the system sets.

    name: as asked for, "power-of-two:d=4". params: of the dispatch policy, those that are set. settings: fields of
    ClusterConfig, other policies (`migration`) and their parameters (`migration_params`) among them.
    """

    name: str
    dispatch: str
    params: Mapping[str, float] = field(default_factory=dict, hash=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    summary: str = ""
    source: str = ""
    own_policy: Policy | None = field(default=None, repr=False, compare=False)

    @property
    def policy(self) -> Policy:
        """The dispatch policy: the object it was made of, else the one registered under that name."""
        return self.own_policy or find_policy("dispatch", self.dispatch)

    @property
    def parts(self) -> dict[str, Policy]:
        """The policies that the system names, by part: dispatch, order, migration, ..."""
        named = {part: self.settings.get(part) for part in PARTS if part != "dispatch"}
        return {"dispatch": self.policy} | {
            part: find_policy(PARTS[part], name)
            for part, name in named.items()
            if name is not None and name not in BUILT_IN_ORDERS
        }

    def params_of(self, part: str) -> Mapping[str, float]:
        """Return the parameters of a part that are set."""
        return self.params if part == "dispatch" else self.settings.get(f"{part}_params", {})

    def configure(self, config: ClusterConfig) -> ClusterConfig:
        """Return the config that it runs with: the user's, and over it the system's own settings.

        Where the user's config names the same policy, its parameters stay, below those of the system.
        """
        if not self.settings:
            return config
        options = config.model_dump() | dict(self.settings)
        for part in DECISIONS.values():
            if part in self.settings:
                is_same = getattr(config, part) == self.settings[part]
                below = getattr(config, f"{part}_params") if is_same else {}
                options[f"{part}_params"] = {**below, **self.params_of(part)}
        return ClusterConfig(**options)

    def manifest(self, config: ClusterConfig) -> dict[str, Any]:
        """Return what it resolves to on that config: dispatch, its parameters, and the fields that differ.

        Of a checkpoint also the hash of its file, which may come to hold other weights under the same name.
        """
        before, after = (each.model_dump(mode="json") for each in (config, self.configure(config)))
        differ = {name: value for name, value in after.items() if value != before[name]}
        resolved = {"dispatch": self.dispatch, "params": dict(self.params), "config": differ}
        policy = self.policy
        if isinstance(policy, LearnedPolicy) and policy.sha256:
            resolved["checkpoint_sha256"] = policy.sha256
        return resolved


def find_system(wanted: "str | Policy | System") -> System:
    """Return a system by name, with parameters and parts behind a colon, or of a dispatch policy.

    ValueError for an unknown name, part or parameter (with the near match), or a value out of range.
    """
    if isinstance(wanted, System):
        return wanted
    if isinstance(wanted, Policy):
        if wanted.kind != "dispatch":
            raise ValueError(
                f"system = {wanted.name!r}; must be a dispatch policy, not {wanted.kind}"
            )
        return of_policy(wanted, own_policy=wanted)
    if not isinstance(wanted, str):
        raise ValueError(f"system = {wanted!r}; must be a name or a dispatch policy")
    name, _, text = wanted.partition(":")
    if is_system_file(name):
        inner = with_settings(read_system_text(name), text)
        try:
            return replace(find_system(inner), name=wanted)
        except RecursionError:
            raise ValueError(f"system file {name} names itself, or one that names it") from None
    if name == FAMILY:
        file, _, text = text.partition(",")
        system = learned_system(wanted, file.strip())
    else:
        system = named_system(name)
    check_set_once(wanted, text)
    for key, value in settings_in(wanted, text, is_swap=True):
        system = swapped(system, key, value)
    for key, value in settings_in(wanted, text, is_swap=False):
        system = with_param(system, name, key, value)
    return replace(system, name=wanted)


def system_names() -> list[str]:
    """Return the names of all systems, sorted: the table's, every dispatch policy, and the checkpoints that ship."""
    shipped = [f"{FAMILY}:{name}" for name in shipped_names()]
    return sorted({*SYSTEMS, *policy_names("dispatch"), *shipped})


def named_system(name: str) -> System:
    """Return the system of the table, else the dispatch policy of that name alone."""
    if name in SYSTEMS:
        own = dict(SYSTEMS[name])
        summary, source, dispatch = own.pop("summary"), own.pop("source"), own.pop("dispatch")
        return System(name, dispatch, own.pop("dispatch_params", {}), own, summary, source)
    if name not in policy_names("dispatch"):
        raise ValueError(f"unknown system {name!r}; {near_match(name, system_names())}")
    return of_policy(find_policy("dispatch", name))


def learned_system(wanted: str, file: str) -> System:
    """Return the system of a checkpoint: the policies that its architecture has, and what these need of the config."""
    if not file or file.partition("=")[0].strip() in (*PARTS, *FIELDS):
        raise ValueError(
            f"system = {wanted!r}; must be {FAMILY}:FILE, then settings: {FAMILY}:FILE,order=sjf"
        )
    name, checkpoint = load_checkpoint(file)
    architecture = ARCHITECTURES[checkpoint.design]
    parts = {part: name for part, kind in PARTS.items() if kind in architecture.functions}
    dispatch = parts.pop("dispatch")
    return System(
        name,
        dispatch,
        settings=dict(architecture.settings) | parts,
        summary=checkpoint.summary,
        source=find_policy("dispatch", dispatch).source,
    )


def of_policy(policy: Policy, own_policy: Policy | None = None) -> System:
    """Return the system that is a dispatch policy and nothing else."""
    return System(
        policy.name,
        policy.name,
        summary=policy.summary,
        source=policy.source,
        own_policy=own_policy,
    )


def settings_in(wanted: str, text: str, is_swap: bool) -> Iterable[tuple[str, str]]:
    """Return the (name, value) pairs behind the colon that set a part or a field, or else a parameter."""
    for setting in filter(None, text.split(",")):
        key, equals, value = (each.strip() for each in setting.partition("="))
        if not equals:
            raise ValueError(f"system = {wanted!r}; {setting!r} must be parameter=number")
        if (key in PARTS or key in FIELDS) == is_swap:
            yield key, value


def check_set_once(wanted: str, text: str) -> None:
    """ValueError naming what the text behind the colon sets twice."""
    names = [name_of(setting) for setting in filter(None, text.split(","))]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"system = {wanted!r}; {twice[0]} is set twice")


def parsed_number(name: str, key: str, value: str) -> float:
    """Return the value as a number; ValueError names the setting."""
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"system = {name!r}; '{key}={value}' must be parameter=number") from None


def swapped(system: System, key: str, value: str) -> System:
    """Return the system with another policy in a part, its parameters at default, or another field."""
    if key == "dispatch":
        found = find_policy("dispatch", value).name  # of a checkpoint: where it lies, from anywhere
        return replace(system, dispatch=found, params={}, own_policy=None)
    settings = {k: v for k, v in system.settings.items() if k != f"{key}_params"}
    settings[key] = field_value(key, value)
    if key in PARTS and settings[key] is not None and settings[key] not in BUILT_IN_ORDERS:
        find_policy(PARTS[key], value)
    return replace(system, settings=settings)


def with_param(system: System, name: str, key: str, value: str) -> System:
    """Return the system with a parameter set: `part.param` in that part, `param` wherever it is declared."""
    part, dot, param = key.rpartition(".")
    if dot and part not in system.parts:
        known = ", ".join(system.parts)
        if part not in PARTS:
            raise ValueError(f"{name}: no part {part!r}; {near_match(part, PARTS)}")
        raise ValueError(f"{name} sets no {part}, only {known}; write {part}=NAME,{key}={value}")
    takers = {part: system.parts[part]} if dot else system.parts
    declared = [each for each, policy in takers.items() if param in names_of(policy)]
    if not declared:
        raise ValueError(f"{name}: {unknown_param(system, takers, key, param)}")
    for each in declared:
        own = {**system.params_of(each), param: parsed_number(name, key, value)}
        system.parts[each].check_params(own)
        if each == "dispatch":
            system = replace(system, params=own)
        else:
            system = replace(system, settings={**system.settings, f"{each}_params": own})
    return system


def names_of(policy: Policy) -> list[str]:
    """Return the names of a policy's parameters."""
    return [param.name for param in policy.params]


def unknown_param(system: System, takers: Mapping[str, Policy], key: str, param: str) -> str:
    """Say that no part takes a parameter, and what can be set instead."""
    if key in ClusterConfig.model_fields:
        option = "--" + key.replace("_", "-")
        return f"{key} is the cluster's, the same for every system; give it as an option ({option})"
    known = [name for policy in takers.values() for name in names_of(policy)]
    if key == param:  # of no part in particular: parts and fields may be meant
        known += [*PARTS, *FIELDS]
    return f"unknown parameter {key!r}; {near_match(param, dict.fromkeys(known))}"
