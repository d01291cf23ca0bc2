"""Architectures: which function takes which decision of a learned policy, and policies from files or from numbers.

One entry for each (decision, architecture). A checkpoint becomes a Policy whose weights are its tensors, packed as its
function reads them; policies of one architecture share compiled code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servegym.baselines.learned import linear, set_mlp
from servegym.baselines.learned.checkpoint import (
    Checkpoint,
    checkpoint_bytes,
    feature_names,
    name_of,
    parsed_checkpoint,
)
from servegym.simulator.policy import Policy

FAMILY = "learned"
IN_MEMORY = "learned"  # the name of a policy that is in no file
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Architecture:
    """How the tensors of one (decision, architecture) become policies.

    pack: tensors to float64[W]. size: what W is, of packed weights. memory: (weights, config) to floats. functions: by
    the kind of policy; a system has all of them. settings: fields of ClusterConfig that a system of it sets, too.
    """

    pack: Callable[[Tensors], np.ndarray]
    size: Callable[[np.ndarray], int]
    memory: Callable[[np.ndarray, Any], int]
    functions: Mapping[str, Callable[..., Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES = {
    ("dispatch", "linear"): Architecture(
        linear.pack, linear.size, linear.memory_size, {"dispatch": linear.learned_linear}
    ),
    ("dispatch", "set-mlp"): Architecture(
        set_mlp.pack, set_mlp.size, set_mlp.memory_size, {"dispatch": set_mlp.learned_set_mlp}
    ),
}

_COMPILED: dict[Callable[..., Any], Any] = {}  # of all learned policies


@dataclass(frozen=True, eq=False)
class LearnedPolicy(Policy):
    """A policy with weights, as its architecture packs them; ValueError for others.

    Pickled with them: another process needs no file, and a file that changed meanwhile does no harm.
    """

    design: tuple[str, str] = ("", "")  # decision, architecture
    sha256: str = ""  # of the file of its tensors

    def __post_init__(self) -> None:
        weights = self.weights
        if (
            not isinstance(weights, np.ndarray)
            or weights.dtype != np.float64
            or weights.ndim != 1
            or len(weights) == 0
        ):
            raise ValueError(f"{self.name}: weights = {weights!r}; must be float64[W], packed")
        wanted = ARCHITECTURES[self.design].size(weights)
        if len(weights) != wanted:
            raise ValueError(f"{self.name}: {len(weights)} weights; {self.design[1]} has {wanted}")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return policy_of, (self.design, self.kind, self.weights, self.name, self.sha256)

    def memory_size(self, config: Any) -> int:
        """Return the floats of memory that the policy needs with this config."""
        assert self.weights is not None
        return ARCHITECTURES[self.design].memory(self.weights, config)


def policy_of(
    design: tuple[str, str],
    kind: str,
    weights: np.ndarray,
    name: str = IN_MEMORY,
    sha256: str = "",
) -> LearnedPolicy:
    """Return the policy of a kind with packed weights; ValueError if the architecture takes no such decision."""
    architecture = ARCHITECTURES[design]
    if kind not in architecture.functions:
        known = ", ".join(architecture.functions)
        raise ValueError(
            f"{name} is of {design[1]} for {design[0]}; it has no {kind} policy, only {known}"
        )
    return LearnedPolicy(
        name=name,
        kind=kind,
        function=architecture.functions[kind],
        source=f"learned; sha256 {sha256[:16]}" if sha256 else "learned",
        weights=weights,
        _compiled=_COMPILED,
        design=design,
        sha256=sha256,
    )


_READ: dict[str, tuple[tuple[bytes, bytes], Checkpoint, dict[str, LearnedPolicy]]] = {}


def load_checkpoint(file: str) -> tuple[str, Checkpoint]:
    """Return what find_policy is asked for to find a checkpoint again, and the checkpoint.

    Read once as long as both its files stay as they are.
    """
    name, checkpoint, _ = _loaded(file)
    return name, checkpoint


def kinds_of(checkpoint: Checkpoint) -> list[str]:
    """Return the kinds of the policies that a checkpoint is."""
    return list(ARCHITECTURES[checkpoint.design].functions)


def load_policy(kind: str, file: str) -> LearnedPolicy:
    """Return the policy of a kind in a checkpoint, by shipped name or path; ValueError that says what is wrong."""
    name, checkpoint, policies = _loaded(file)
    if kind not in policies:
        design = checkpoint.design
        weights = ARCHITECTURES[design].pack(dict(checkpoint.tensors))
        weights.setflags(write=False)  # others get the same policy
        policies[kind] = policy_of(design, kind, weights, name, checkpoint.sha256)
    return policies[kind]


def _loaded(file: str) -> tuple[str, Checkpoint, dict[str, LearnedPolicy]]:
    path, *content = checkpoint_bytes(file)
    name = f"{FAMILY}:{name_of(path)}"
    known = _READ.get(name)
    if known is None or known[0] != tuple(content):
        known = (content[0], content[1]), parsed_checkpoint(path, content[0], content[1]), {}
        _READ[name] = known
    return name, known[1], known[2]


def linear_policy(weights: np.ndarray) -> LearnedPolicy:
    """Return the linear dispatch policy with these weights, float[3F]; ValueError unless so many and finite.

    replace(policy, weights=other) is another one, if other is float64[3F].
    """
    return _in_memory("linear", {"weight": np.asarray(weights, np.float32)}, 0)


def set_network_policy(tensors: Mapping[str, np.ndarray]) -> LearnedPolicy:
    """Return the set-mlp dispatch policy with these tensors, float32 by name; ValueError for a wrong one."""
    return _in_memory("set-mlp", tensors, len(tensors["encoder.bias"]))


def _in_memory(architecture: str, tensors: Mapping[str, np.ndarray], hidden: int) -> LearnedPolicy:
    design = "dispatch", architecture
    card = {"format": 1, "decision": design[0], "architecture": architecture}
    card |= {"hidden": hidden} if hidden else {}
    checked = Checkpoint(card | {"features": feature_names()}, tensors)
    return policy_of(design, "dispatch", ARCHITECTURES[design].pack(dict(checked.tensors)))
