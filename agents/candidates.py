"""Candidates: what a search moves, as a vector, and the policy that each vector is.

    linear    3F weights of the linear score (baselines/learned/linear.py)
    set-mlp   the same, and a small instance-set network that corrects the score (baselines/learned/set_mlp.py)

Coordinates are in units in which all matter alike: a weight of the linear score times the spread of its term, that is
how much it differs among instances, measured while least (KV + waiting) plays (`spreads`). Where nothing differs, the
weight stays 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from servegym.agents.scenarios import LENGTHS, Case
from servegym.baselines.features import (
    INSTANCE_FEATURES,
    N_CLUSTER,
    N_INSTANCE,
    N_REQUEST,
    REQUEST_FEATURES,
)
from servegym.baselines.learned import linear_policy, set_network_policy
from servegym.envs.dispatch import DispatchEnv
from servegym.simulator.config import SCENARIOS
from servegym.simulator.policy import Policy
from servegym.traces.streams import stream

N_TERMS = 3 * N_INSTANCE
NAMES = [feature.name for feature in INSTANCE_FEATURES]
OF_REQUEST = [feature.name for feature in REQUEST_FEATURES]
# Where a search begins: the least sum of these, each in its unit; a busy instance has more of all.
LOADS = (
    "running",
    "prefilling",
    "prefill_tokens",
    "tokens_left",
    "kv_at_ends",
    "waiting_prefill",
    "waiting_output",
    "kv_with_request",
)
LEAST_SPREAD = 0.005  # of a term that seldom differs: a unit of it would be a huge weight
SEEN_REQUESTS = 1_000  # of each case, after as many that fill the cluster
NETWORK_DEVIATION = 0.5  # of network weights, over the root of how many are added up
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Space:
    """The vectors of one architecture. start, deviation: float64[N], where a search begins."""

    architecture: str
    start: np.ndarray
    deviation: np.ndarray
    tensors: Callable[[np.ndarray], Tensors]
    card: Mapping[str, int | str]  # architecture, and hidden where it has one

    def policy(self, vector: np.ndarray) -> Policy:
        """Return the dispatch policy that a vector is."""
        tensors = self.tensors(vector)
        if self.architecture == "linear":
            return linear_policy(tensors["weight"])
        return set_network_policy(tensors)


def linear_space(spread: np.ndarray, deviation: float) -> Space:
    """Return the space of linear scores; spread: float64[3F] of `spreads`."""
    moves = spread > 0
    per_unit = np.where(moves, 1.0 / np.maximum(spread, LEAST_SPREAD), 0.0)
    start = np.zeros(N_TERMS)
    start[[NAMES.index(name) for name in LOADS]] = 1.0 / np.sqrt(len(LOADS))
    return Space(
        "linear",
        start * moves,
        deviation * moves,
        lambda vector: {"weight": (vector * per_unit).astype(np.float32)},
        {"architecture": "linear"},
    )


def set_mlp_space(spread: np.ndarray, deviation: float, hidden: int, seed: int) -> Space:
    """Return the space of set networks on top of linear scores; the network begins at random, its output at 0."""
    linear = linear_space(spread, deviation)
    n_inputs = N_INSTANCE + N_REQUEST + N_CLUSTER
    shapes = {
        "encoder.weight": (hidden, n_inputs),
        "encoder.bias": (hidden,),
        "head.weight": (hidden, 2 * hidden),
        "head.bias": (hidden,),
        "out.weight": (1, hidden),
    }
    added = {"encoder": n_inputs, "head": 2 * hidden, "out": hidden}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    units = np.concatenate(
        [
            np.full(size, 1.0 / np.sqrt(added[name.partition(".")[0]]))
            for name, size in zip(shapes, sizes, strict=True)
        ]
    )
    first = stream(seed, "network").standard_normal(len(units)) * units
    first[-hidden:] = 0.0

    def tensors(vector: np.ndarray) -> Tensors:
        parts = np.split(vector, np.cumsum([N_TERMS, *sizes])[:-1])
        network = {
            name: part.reshape(shape).astype(np.float32)
            for (name, shape), part in zip(shapes.items(), parts[1:], strict=True)
        }
        skip = linear.tensors(parts[0])["weight"].reshape(1, -1)
        return network | {"out.bias": np.zeros(1, np.float32), "skip.weight": skip}

    return Space(
        "set-mlp",
        np.concatenate([linear.start, first]),
        np.concatenate([linear.deviation, NETWORK_DEVIATION * units]),
        tensors,
        {"architecture": "set-mlp", "hidden": hidden},
    )


def spreads(cases: list[Case]) -> np.ndarray:
    """Return how much each term of the linear score differs among instances, float64[3F].

    The root mean square, over the decisions of all cases, of its standard deviation over the instances, while the
    instance with the least kv_with_request + kv_waiting plays. A term: a feature times 1, predicted_output or kv_need.
    """
    squares = np.mean([_squares(case) for case in cases], axis=0)
    return np.sqrt(squares)


def _squares(case: Case) -> np.ndarray:
    """Return the mean square of the deviation among instances of every term, on one case."""
    env = DispatchEnv(
        workload=case.workload,
        load=case.load,
        episode_requests=2 * SEEN_REQUESTS,
        horizon_s=None,
        cluster={"instances": case.instances} | SCENARIOS[case.scenario] | LENGTHS[case.lengths],
    )
    seen, info = env.reset(seed=case.seed)
    by_kv = [NAMES.index("kv_with_request"), NAMES.index("kv_waiting")]
    factors = [OF_REQUEST.index("predicted_output"), OF_REQUEST.index("kv_need")]
    total = np.zeros((3, N_INSTANCE))
    for step in range(2 * SEEN_REQUESTS):
        rows, request = seen["instances"].astype(np.float64), seen["request"].astype(np.float64)
        if step >= SEEN_REQUESTS:
            total += np.outer([1.0, *(request[factors] ** 2)], rows.var(axis=0))
        load = np.where(info["action_mask"] == 1, rows[:, by_kv].sum(axis=1), np.inf)
        seen, _, is_over, is_cut, info = env.step(int(np.argmin(load)))
        if is_over or is_cut:
            break
    env.close()
    return total.ravel() / SEEN_REQUESTS
