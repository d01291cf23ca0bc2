"""Candidates: what a search moves, as a vector, and the policy that each vector is.

    linear    3F weights of the linear score (baselines/learned/linear.py)
    set-mlp   the same, and a small instance-set network that corrects the score (baselines/learned/set_mlp.py)

Coordinates are in units in which all matter alike (units.py). `accepts` is 1 wherever it is asked: its weights stay 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from servegym.agents.units import NAMES, units
from servegym.baselines.features import N_CLUSTER, N_INSTANCE, N_REQUEST
from servegym.baselines.learned import linear_policy, set_network_policy
from servegym.simulator.policy import Policy
from servegym.traces.streams import stream

N_TERMS = 3 * N_INSTANCE

# Where a search begins: the least sum of what a busy instance has more of.
LOADS: dict[str, float] = dict.fromkeys(
    (
        "running",
        "prefilling",
        "prefill_tokens",
        "tokens_left",
        "kv_at_ends",
        "waiting_prefill",
        "waiting_output",
        "kv_with_request",
    ),
    0.35,
)
# Of network weights, over that of linear ones, before the root of how many are added up.
NETWORK_DEVIATION = 2.0
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Space:
    """The vectors of one architecture, float64[N].

    start: the vector to begin at. scale: what a deviation of 1 is in each coordinate. tensors: of a vector, for
    a checkpoint. card: architecture, and hidden where it has one.
    """

    start: np.ndarray
    scale: np.ndarray
    tensors: Callable[[np.ndarray], Tensors]
    card: Mapping[str, int | str]

    def policy(self, vector: np.ndarray) -> Policy:
        """Return the dispatch policy that a vector is."""
        tensors = self.tensors(vector)
        if self.card["architecture"] == "linear":
            return linear_policy(tensors["weight"])
        return set_network_policy(tensors)


def linear_space() -> Space:
    """Return the space of linear scores."""
    unit = units()
    per_unit = np.divide(1.0, unit, out=np.zeros(N_TERMS), where=unit > 0)
    start = np.zeros(N_TERMS)
    for feature, value in LOADS.items():
        start[NAMES.index(feature)] = value
    return Space(
        start,
        (unit > 0).astype(np.float64),
        lambda vector: {"weight": (vector * per_unit).astype(np.float32)},
        {"architecture": "linear"},
    )


def set_mlp_space(hidden: int, seed: int) -> Space:
    """Return the space of set networks on top of linear scores; the network begins at random, its output at 0."""
    linear = linear_space()
    n_inputs = N_INSTANCE + N_REQUEST + N_CLUSTER
    shapes = {
        "encoder.weight": (hidden, n_inputs),
        "encoder.bias": (hidden,),
        "head.weight": (hidden, 2 * hidden),
        "head.bias": (hidden,),
        "out.weight": (1, hidden),
    }
    # How many numbers are in the sum that each is part of.
    added = [n_inputs, n_inputs, 2 * hidden, 2 * hidden, hidden]
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    scale = np.repeat(1.0 / np.sqrt(added), sizes)
    network = stream(seed, "network").standard_normal(len(scale)) * scale
    network[-hidden:] = 0.0

    def tensors(vector: np.ndarray) -> Tensors:
        parts = np.split(vector, np.cumsum([N_TERMS, *sizes])[:-1])
        weights = {
            name: part.reshape(shape).astype(np.float32)
            for (name, shape), part in zip(shapes.items(), parts[1:], strict=True)
        }
        skip = linear.tensors(parts[0])["weight"].reshape(1, -1)
        return weights | {"out.bias": np.zeros(1, np.float32), "skip.weight": skip}

    return Space(
        np.concatenate([linear.start, network]),
        np.concatenate([linear.scale, NETWORK_DEVIATION * scale]),
        tensors,
        {"architecture": "set-mlp", "hidden": hidden},
    )
