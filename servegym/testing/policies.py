"""Conformance of one policy: what every policy of its kind must do, whatever it decides.

In many small random clusters (clusters.py): every answer is legal, no request and no KV block is lost, the same seed
gives the same run, copies have the same future, parameters and memory are kept to, nothing else is written, the true
outputs are not known. At the bounds of each parameter it must still run. With nothing to choose, all choose alike.
Left out: whether it decides well.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from servegym.simulator.policy import Policy, find_policy, policy_names
from servegym.simulator.state import ROLES
from servegym.testing.clusters import Case, random_case
from servegym.testing.invariance import INVARIANCES, check_truth_is_unknown
from servegym.testing.reading import check_reads_only
from servegym.testing.replays import (
    check_copies,
    check_own_arrays,
    check_runs,
    check_same_again,
)

SEEDS = range(12)
BOUND_SEEDS = 2  # cases at each bound of each parameter
CHECKS: tuple[Callable[[Case], None], ...] = (
    check_runs,
    check_same_again,
    check_copies,
    check_own_arrays,
    check_reads_only,
)


def check_policy(
    policy: Policy | str, *, seeds: Sequence[int] = SEEDS, kind: str | None = None
) -> None:
    """Check a policy of any kind in one random cluster a seed, then at its parameters' bounds.

    policy: what a decorator returned, or a registered name together with its kind (state.ROLES: "dispatch",
    "ordering", "estimation", "remaining", "admission", "queue", "migration", "scaling"). Raises AssertionError that
    says what is wrong and how the case is made again; ValueError if the policy cannot be found under its own name or
    seeds is empty. Takes some seconds, more where the policy or the engine is compiled first.
    """
    policy = _found(policy, kind)
    if not len(seeds):
        raise ValueError("seeds = []; must be at least one")
    _check_defaults(policy, random_case(policy, seeds[0]))
    for seed in seeds:
        case = random_case(policy, seed)
        for check in CHECKS:
            with _explained(case, check):
                check(case)
    for seed in seeds[:BOUND_SEEDS]:
        for params in _bounds(policy):
            case = random_case(policy, seed, params)
            with _explained(case, check_runs):
                check_runs(case)
    last = random_case(policy, seeds[0])
    for check in (check_truth_is_unknown, *INVARIANCES.get(policy.kind, ())):
        with _explained(last, check, is_case=False):
            check(policy)


def _found(policy: Policy | str, kind: str | None) -> Policy:
    """Return the policy; ValueError if its name and kind do not lead to it, as they must for the engine."""
    if isinstance(policy, str):
        if kind not in ROLES:
            raise ValueError(
                f"kind = {kind!r}; a policy given by name needs one of {', '.join(ROLES)}"
            )
        return find_policy(kind, policy)
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy = {policy!r}; must be what a decorator like @dispatch_policy returned, or a name"
        )
    if kind is not None and kind != policy.kind:
        raise ValueError(f"kind = {kind!r}; {policy.name!r} is of kind {policy.kind!r}")
    is_known = policy.name in policy_names(policy.kind)
    if not is_known or find_policy(policy.kind, policy.name) is not policy:
        raise ValueError(
            f"{policy.kind} policy {policy.name!r} has been registered anew since; check the newer one"
        )
    return policy


def _check_defaults(policy: Policy, case: Case) -> None:
    """AssertionError for a parameter whose default is out of its own bounds."""
    for param in policy.params:
        default = param.default(case.trace) if callable(param.default) else param.default
        try:
            param.check(default, policy.name)
        except ValueError as error:
            raise AssertionError(
                f"{policy.kind} policy {policy.name!r}: default of {error}"
            ) from None


def _bounds(policy: Policy) -> Iterator[dict[str, float]]:
    """Yield the least and the largest value of every parameter, the others at their defaults.

    Where one may not exceed another (`at_most`), that other goes as far with it.
    """
    for param in policy.params:
        above = [other for other in policy.params if other.name == param.at_most]
        below = [other for other in policy.params if other.at_most == param.name]
        yield {param.name: param.low} | {other.name: other.low for other in below}
        yield {param.name: param.high} | {other.name: other.high for other in above}


@contextmanager
def _explained(case: Case, check: Callable[..., None], is_case: bool = True) -> Iterator[None]:
    """Turn whatever goes wrong into an AssertionError that names policy, check and case."""
    try:
        yield
    except Exception as error:  # the engine's errors, and those of an interpreted policy
        policy = case.policy
        what = (check.__doc__ or "").partition("\n")[0].rstrip(".")
        again = f"\n  again: {case.text()}" if is_case else ""
        raise AssertionError(
            f"{policy.kind} policy {policy.name!r}: {error}\n  checked: {what}{again}"
        ) from error
