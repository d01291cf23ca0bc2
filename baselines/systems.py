"""Systems: what a comparison runs under one name. Every registered dispatch policy is a system.

    find_system("power-of-two")       find_system("power-of-two:d=4")       find_system(my_policy)

A name may be followed by parameters. A Policy object, from a user's own script, is a system too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from servegym.simulator.policy import Policy, find_policy, policy_names
from servegym.traces.names import near_match, read_settings


@dataclass(frozen=True)
class System:
    """A dispatch policy and its parameters, by name.

    name: as asked for, "power-of-two:d=4". dispatch: the policy's name. params: those that are set.
    """

    name: str
    dispatch: str
    params: Mapping[str, float] = field(default_factory=dict, hash=False)
    summary: str = ""
    source: str = ""
    own_policy: Policy | None = field(default=None, repr=False, compare=False)

    @property
    def policy(self) -> Policy:
        """The policy: the object it was made of, else the one registered under that name."""
        return self.own_policy or find_policy("dispatch", self.dispatch)


def find_system(wanted: "str | Policy | System") -> System:
    """Return a system by name, with parameters ("name:a=1,b=2"), or of a dispatch policy.

    ValueError for an unknown name or parameter (with the near match), or a value out of range.
    """
    if isinstance(wanted, System):
        return wanted
    if isinstance(wanted, Policy):
        if wanted.kind != "dispatch":
            raise ValueError(
                f"system = {wanted.name!r}; must be a dispatch policy, not {wanted.kind}"
            )
        return _system_of(wanted, wanted.name, {}, own_policy=wanted)
    if not isinstance(wanted, str):
        raise ValueError(f"system = {wanted!r}; must be a name or a dispatch policy")
    name, _, settings = wanted.partition(":")
    if name not in system_names():
        raise ValueError(f"unknown system {name!r}; {near_match(name, system_names())}")
    return _system_of(
        find_policy("dispatch", name), wanted, read_settings("system", wanted, settings)
    )


def system_names() -> list[str]:
    """Return the names of all systems, sorted."""
    return policy_names("dispatch")


def _system_of(
    policy: Policy, name: str, params: Mapping[str, float], own_policy: Policy | None = None
) -> System:
    policy.check_params(params)
    return System(name, policy.name, dict(params), policy.summary, policy.source, own_policy)
