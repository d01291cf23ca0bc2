"""Policies: one small function each, with a decorator that fixes its signature and registers it by name.

    @dispatch_policy(source=...)   f(cluster, request, params, memory, rng) -> instance or HOLD
    @ordering_policy(source=...)   f(request, now_ps, params) -> float key, least first
    @estimator(source=...)         f(request, params, memory, rng) -> predicted output tokens
    @remaining_policy(source=...)  f(request, generated, params, memory) -> output tokens left, for what-if
    @admission_policy(source=...)  f(cluster, request, params, memory, rng) -> ACCEPT | HOLD | REJECT
    @queue_policy(source=...)      f(cluster, params, memory, rng) -> whose head the gateway dispatches, or HOLD
    @migration_policy(source=...)  f(cluster, moves, params, memory, rng) -> moves written: source, destination, request
    @scaling_policy(source=...)    f(cluster, params, memory, rng) -> -1 | 0 | +1

`cluster` and `request` are read through the accessors of views.py. A policy compiles on first use to a numba cfunc
(cached beside nothing but its own sources) and is called by address. It must not keep state of its own: `memory`
(float64[:], part of every snapshot) is for that, `rng` (uint64[1], see random_stream.py) for chance.
"""

import dis
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numba.core.typing.templates import Signature

from servegym.simulator import calls
from servegym.simulator.kernel import (
    IS_JIT_DISABLED,
    codes_of,
    compile_policy,
    names_of,
    reachable_functions,
)
from servegym.simulator.views import output_tokens
from servegym.traces.names import near_match

SIGNATURES: dict[str, Signature] = {
    "dispatch": calls.DISPATCH,
    "ordering": calls.ORDER,
    "estimation": calls.PREDICT,
    "remaining": calls.REMAIN,
    "admission": calls.ADMIT,
    "queue": calls.CHOOSE_QUEUE,
    "migration": calls.MIGRATE,
    "scaling": calls.SCALE,
}
OBSERVATION = "observation"  # the second function of an estimator or of a remaining-length policy
ARGUMENTS = {
    "dispatch": ("cluster", "request", "params", "memory", "rng"),
    "ordering": ("request", "now_ps", "params"),
    "estimation": ("request", "params", "memory", "rng"),
    "remaining": ("request", "generated", "params", "memory"),
    "admission": ("cluster", "request", "params", "memory", "rng"),
    "queue": ("cluster", "params", "memory", "rng"),
    "migration": ("cluster", "moves", "params", "memory", "rng"),
    "scaling": ("cluster", "params", "memory", "rng"),
    OBSERVATION: ("request", "output_tokens", "params", "memory"),
}


@dataclass(frozen=True)
class Param:
    """One number a policy takes: what a user sets and a tuner searches in [low, high]."""

    name: str
    default: float | Callable[[Any], float]  # or a function of the trace
    unit: str
    low: float
    high: float
    is_whole: bool = False
    at_most: str = ""  # another parameter of the policy, which this one may not exceed

    def check(self, value: float, policy: str) -> float:
        """Return the value as a float; ValueError if it is not a number in [low, high]."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ValueError(f"{policy}: {self.name} = {value!r}; must be a number")
        if not self.low <= value <= self.high:
            raise ValueError(
                f"{policy}: {self.name} = {value}; must be in [{self.low}, {self.high}] {self.unit}"
            )
        if self.is_whole and value != int(value):
            raise ValueError(f"{policy}: {self.name} = {value}; must be a whole number")
        return float(value)


@dataclass(frozen=True, eq=False)
class Policy:
    """A registered policy: its function, what it is called, and what it needs."""

    name: str
    kind: str  # one of SIGNATURES
    function: Callable[..., Any]
    source: str
    params: tuple[Param, ...] = ()
    memory: int | Callable[[Any], int] = 0  # floats, or a function of the config
    is_oracle: bool = False
    is_time_dependent: bool = False
    observe: Callable[..., Any] | None = (
        None  # is shown completions: (request, output_tokens, params, memory)
    )
    weights: np.ndarray | None = field(default=None, repr=False)  # float64[W], of a learned policy
    _compiled: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Callable[..., "Policy"], tuple[str, str]]:
        """Pickle by name: compiled code and addresses belong to a process."""
        return find_policy, (self.kind, self.name)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def uses_what_if(self) -> bool:
        """Whether the function, or a helper of it, asks for a what-if prediction."""
        return any(
            getattr(value, "__name__", "") in WHAT_IF
            for function in reachable_functions(self.function)
            for _, value in names_of(function)
        )

    @property
    def uses_outlook(self) -> bool:
        """Whether the function, or a helper of it, reads what waiting or running requests are predicted to need."""
        return any(
            getattr(value, "__module__", "") == OUTLOOK_VIEWS
            for function in reachable_functions(self.function)
            for _, value in names_of(function)
        )

    @property
    def address(self) -> int:
        """The address of the compiled function in this process (compiles on first use)."""
        return self._address_of(self.function, SIGNATURES[self.kind])

    @property
    def observe_address(self) -> int:
        """The address of the compiled `observe`; 0 without one."""
        return self._address_of(self.observe, calls.OBSERVE) if self.observe else 0

    def _address_of(self, function: Callable[..., Any], signature: Signature) -> int:
        if IS_JIT_DISABLED:
            return calls.python_address(function)
        if function not in self._compiled:
            self._compiled[function] = self._compile(function, signature)
        return self._compiled[function].address

    def _compile(self, function: Callable[..., Any], signature: Signature) -> Any:
        try:
            return compile_policy(function, signature)
        except Exception as error:  # numba's own, but not all of one class
            code = function.__code__
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{self.kind} policy {self.name!r} ({code.co_filename}:{code.co_firstlineno}) "
                f"does not compile: {reason[:500]}"
            ) from None

    def memory_size(self, config: Any) -> int:
        """Return the floats of memory that the policy needs with this config."""
        size = self.memory(config) if callable(self.memory) else self.memory
        if not isinstance(size, int | np.integer) or not 0 <= size <= MOST_MEMORY:
            raise ValueError(f"{self.name}: memory = {size!r}; must be 0 .. {MOST_MEMORY} floats")
        return int(size)

    def check_params(self, given: Mapping[str, float]) -> None:
        """ValueError for a parameter that is unknown (names the nearest known) or out of its range."""
        known = {param.name: param for param in self.params}
        for name, value in given.items():
            if name not in known:
                raise ValueError(
                    f"{self.name}: unknown parameter {name!r}; {near_match(name, known)}"
                )
            known[name].check(value, self.name)

    def check_together(self, given: Mapping[str, float]) -> None:
        """ValueError for a parameter above one that it may not exceed; check_params has seen each alone."""
        values: dict[str, Any] = {param.name: param.default for param in self.params} | dict(given)
        for param in self.params:
            if param.at_most and values[param.name] > values[param.at_most]:
                raise ValueError(
                    f"{self.name}: {param.name} = {values[param.name]}; must be <= {param.at_most} = "
                    f"{values[param.at_most]}"
                )

    @property
    def n_values(self) -> int:
        """What the function gets as `params`: parameters, and behind them weights."""
        return len(self.params) + (0 if self.weights is None else len(self.weights))

    def param_values(self, given: Mapping[str, float], trace: Any) -> np.ndarray:
        """Return float64[n_values]: parameters, defaults filled in for that trace, and weights."""
        self.check_params(given)
        self.check_together(given)
        values = [
            given[p.name]
            if p.name in given
            else p.default(trace)
            if callable(p.default)
            else p.default
            for p in self.params
        ]
        parameters = np.array(values, dtype=np.float64)
        return parameters if self.weights is None else np.concatenate([parameters, self.weights])

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain Python function, for tests and for reading."""
        return self.function(*arguments)


MOST_MEMORY = 10**8  # floats
BUILT_IN_ORDERS = ("fcfs", "priority")  # orders that are no policies: the engine has them
AGENT = "agent"  # the policies of that name wait for the caller of an environment (envs/agent.py); listed nowhere
OUTLOOK_VIEWS = "servegym.simulator.outlook_views"
WHAT_IF = {
    "predicted_finish_s",
    "finish_within_s",
    "marginal_latency_s",
}  # accessors that play an instance's future
_REGISTRY: dict[tuple[str, str], Policy] = {}

# Packages whose modules are all imported at the first look-up of a name: policies are plug-ins, the simulator knows
# none of them, and adding one is adding a file.
POLICY_PACKAGES = [
    "servegym.baselines.dispatch",
    "servegym.baselines.ordering",
    "servegym.baselines.estimation",
    "servegym.baselines.remaining",
    "servegym.baselines.admission",
    "servegym.baselines.queueing",
    "servegym.baselines.migration",
    "servegym.baselines.scaling",
]


# Policies that are read from a file: "learned:FILE" of any kind is what load_policy(kind, FILE) of that module returns.
POLICY_FILES = {"learned": "servegym.baselines.learned"}


@lru_cache(maxsize=1)
def _load_policies() -> None:
    for package_name in POLICY_PACKAGES:
        package = importlib.import_module(package_name)
        for module in pkgutil.iter_modules(package.__path__, prefix=f"{package_name}."):
            importlib.import_module(module.name)


def find_policy(kind: str, name: str) -> Policy:
    """Return the registered policy, or that of a file; ValueError with the near match when there is none."""
    family, colon, file = name.partition(":")
    if colon and family in POLICY_FILES:
        return importlib.import_module(POLICY_FILES[family]).load_policy(kind, file)
    _load_policies()
    found = _REGISTRY.get((kind, name))
    if found is None:
        known = [*(BUILT_IN_ORDERS if kind == "ordering" else ()), *policy_names(kind)]
        raise ValueError(f"unknown {kind} policy {name!r}; {near_match(name, known)}")
    return found


def policy_names(kind: str) -> list[str]:
    """Return the registered names of a kind, sorted."""
    _load_policies()
    return sorted(name for known, name in _REGISTRY if known == kind and name != AGENT)


def _register(
    kind: str, name: str | None, **details: Any
) -> Callable[[Callable[..., Any]], Policy]:
    def decorate(function: Callable[..., Any]) -> Policy:
        policy = Policy(
            name=name or function.__name__.replace("_", "-"),
            kind=kind,
            function=function,
            **details,
        )
        _check_arguments(policy)
        _check_truthful(policy, function)
        _check_repeatable(policy)
        _check_cannot_raise(policy)
        before = _REGISTRY.get((kind, policy.name))
        if before is not None and before.function.__module__ != function.__module__:
            raise ValueError(
                f"{kind} policy {policy.name!r} exists already, in {before.function.__module__}"
            )
        _REGISTRY[kind, policy.name] = policy
        return policy

    return decorate


TRUTH = {"output_tokens", "need_blocks"}  # fields of a request that tell its output
CANNOT_RAISE = {"RAISE_VARARGS", "LOAD_ASSERTION_ERROR"}


def _check_truthful(policy: Policy, root: Callable[..., Any]) -> None:
    """Refuse a policy that reads the true output, itself or through a helper, without saying so."""
    for function in reachable_functions(root):
        said = {
            name
            for code in codes_of(function)
            for name in (*code.co_names, *code.co_consts)
            if isinstance(name, str)
        }
        is_read = bool(said & TRUTH) or any(
            value is output_tokens for _, value in names_of(function)
        )
        if is_read and not policy.is_oracle:
            raise ValueError(
                f"{policy.kind} policy {policy.name!r} reads output_tokens, the truth, in "
                f"{function.__name__}; declare oracle=True"
            )


def _functions_of(policy: Policy) -> list[Callable[..., Any]]:
    """Return all that a policy runs: its functions and their helpers."""
    roots = [policy.function] + ([policy.observe] if policy.observe else [])
    return [function for root in roots for function in reachable_functions(root)]


def _check_repeatable(policy: Policy) -> None:
    """Refuse a policy that draws from a generator that no seed and no snapshot holds."""
    for function in _functions_of(policy):
        values = [value for _, value in names_of(function)]
        homes = [
            getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in values
        ]
        is_foreign = any(f"{home}.".startswith(("random.", "numpy.random.")) for home in homes)
        names = {name for code in codes_of(function) for name in code.co_names}
        if is_foreign or ("random" in names and any(value is np for value in values)):
            raise ValueError(
                f"{policy.kind} policy {policy.name!r} uses np.random or random in {function.__name__}, which no seed "
                "of a run holds; draw with random_below(rng, n) or random_float(rng) of "
                "servegym.simulator.random_stream"
            )


def _check_cannot_raise(policy: Policy) -> None:
    """Refuse raise, assert and print: a compiled callback cannot do them, and would return 0 instead."""
    for function in _functions_of(policy):
        for code in codes_of(function):
            raises = any(step.opname in CANNOT_RAISE for step in dis.get_instructions(code))
            if raises or "print" in code.co_names:
                raise ValueError(
                    f"{policy.kind} policy {policy.name!r} raises, asserts or prints in {function.__name__}; a "
                    "compiled policy cannot: return HOLD, or check before the run"
                )


def _check_arguments(policy: Policy) -> None:
    """Refuse a function that does not take what its kind of policy is called with."""
    wanted = {policy.kind: policy.function} | (
        {OBSERVATION: policy.observe} if policy.observe else {}
    )
    for kind, function in wanted.items():
        given = list(inspect.signature(function).parameters)
        if len(given) != len(ARGUMENTS[kind]):
            raise ValueError(
                f"{kind} policy {policy.name!r} takes ({', '.join(given)}); "
                f"must take ({', '.join(ARGUMENTS[kind])})"
            )


def dispatch_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(cluster, request, params, memory, rng) -> instance index, or HOLD when none accepts."""
    return _register(
        "dispatch", name, source=source, params=params, memory=memory, is_oracle=oracle
    )


def ordering_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    oracle: bool = False,
    time_dependent: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(request, now_ps, params) -> float key, least first; ties by arrival, then trace order."""
    return _register(
        "ordering",
        name,
        source=source,
        params=params,
        is_oracle=oracle,
        is_time_dependent=time_dependent,
    )


def estimator(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
    observe: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(request, params, memory, rng) -> predicted output tokens.

    observe(request, output_tokens, params, memory) is shown every completion, in order, before the next prediction.
    """
    return _register(
        "estimation",
        name,
        source=source,
        params=params,
        memory=memory,
        is_oracle=oracle,
        observe=observe,
    )


def remaining_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
    observe: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(request, generated, params, memory) -> output tokens left of one that has streamed `generated`.

    What-if asks it for every request of an instance. observe: as for an estimator.
    """
    return _register(
        "remaining",
        name,
        source=source,
        params=params,
        memory=memory,
        is_oracle=oracle,
        observe=observe,
    )


def admission_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(cluster, request, params, memory, rng) -> ACCEPT, HOLD (ask again later) or REJECT."""
    return _register(
        "admission", name, source=source, params=params, memory=memory, is_oracle=oracle
    )


def queue_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(cluster, params, memory, rng) -> the gateway queue whose head is dispatched next, or HOLD."""
    return _register("queue", name, source=source, params=params, memory=memory, is_oracle=oracle)


def migration_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(cluster, moves, params, memory, rng) -> how many rows of moves, int64[:, 3], it wrote.

    A row: source, destination, index of the request. Asked every rebalance_interval_s.
    """
    return _register(
        "migration", name, source=source, params=params, memory=memory, is_oracle=oracle
    )


def scaling_policy(
    *,
    source: str,
    name: str | None = None,
    params: tuple[Param, ...] = (),
    memory: int | Callable[[Any], int] = 0,
    oracle: bool = False,
) -> Callable[[Callable[..., Any]], Policy]:
    """Register f(cluster, params, memory, rng) -> -1 (drain one), 0 or +1 (add one). Asked every scaling_interval_s."""
    return _register("scaling", name, source=source, params=params, memory=memory, is_oracle=oracle)
