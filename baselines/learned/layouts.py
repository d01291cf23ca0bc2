"""Layouts: which tensors an architecture has, of which shapes, and which rows of features it reads.

One entry for each (decision, architecture) that a card may name. F, R and C: features of an instance, of a request
and of the cluster. What the numbers do is said beside the function that reads them (linear.py, set_mlp.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from servegym.baselines.features import N_CLUSTER, N_INSTANCE, N_REQUEST
from servegym.traces.names import near_match

Shape = tuple[int, ...]
DECISIONS = ("dispatch", "serve")
MOST_HIDDEN = 1024
N_PRODUCTS = 3 * N_INSTANCE  # a row times 1, the predicted output and the KV need


@dataclass(frozen=True)
class Layout:
    """What a checkpoint of one architecture holds."""

    shapes: Callable[[int], dict[str, Shape]]  # of the hidden width, 0 without one
    parts: tuple[str, ...]  # the rows that it reads: instance, request, queue, cluster
    has_hidden: bool = False


def _linear(hidden: int) -> dict[str, Shape]:
    return {"weight": (N_PRODUCTS,)}


def _set_mlp(hidden: int) -> dict[str, Shape]:
    return {
        "encoder.weight": (hidden, N_INSTANCE + N_REQUEST + N_CLUSTER),
        "encoder.bias": (hidden,),
        "head.weight": (hidden, 2 * hidden),
        "head.bias": (hidden,),
        "out.weight": (1, hidden),
        "out.bias": (1,),
        "skip.weight": (1, N_PRODUCTS),
    }


LAYOUTS = {
    ("dispatch", "linear"): Layout(_linear, ("instance", "request")),
    ("dispatch", "set-mlp"): Layout(_set_mlp, ("instance", "request", "cluster"), has_hidden=True),
}


def layout_of(decision: str, architecture: str) -> Layout:
    """Return the layout; ValueError, with the near match, for a decision or an architecture that there is not."""
    if decision not in DECISIONS:
        raise ValueError(f"decision = {decision!r}; {near_match(decision, DECISIONS)}")
    known = [name for of, name in LAYOUTS if of == decision]
    if architecture not in known:
        raise ValueError(
            f"architecture = {architecture!r} of decision {decision!r}; {near_match(architecture, known)}"
        )
    return LAYOUTS[decision, architecture]
