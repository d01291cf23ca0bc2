"""Checkpoints for tests: tensors by chance, cards, and the set network written plainly in float64."""

from pathlib import Path

import numpy as np

from servegym.baselines.features import INSTANCE_FEATURES
from servegym.baselines.learned import write_checkpoint
from servegym.baselines.learned.layouts import LAYOUTS, N_PRODUCTS

F = len(INSTANCE_FEATURES)
LINEAR = {"decision": "dispatch", "architecture": "linear"}
SET_MLP = {"decision": "dispatch", "architecture": "set-mlp", "hidden": 32}


def linear_weights(**named: float) -> np.ndarray:
    """Return weights that are 0 but for features by name; `_by_output` and `_by_need` behind one: of its products."""
    weights = np.zeros(N_PRODUCTS, np.float32)
    names = [feature.name for feature in INSTANCE_FEATURES]
    for name, value in named.items():
        plain = name.removesuffix("_by_output").removesuffix("_by_need")
        block = 1 if name.endswith("_by_output") else 2 if name.endswith("_by_need") else 0
        weights[block * F + names.index(plain)] = value
    return weights


def random_tensors(hidden: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the tensors of a set network, of the size that training begins with."""
    rng = np.random.default_rng(seed)
    shapes = LAYOUTS["dispatch", "set-mlp"].shapes(hidden)
    return {
        name: rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def written(folder: Path, architecture: str, seed: int = 0) -> str:
    """Write a checkpoint by chance; return the name of its system."""
    if architecture == "linear":
        weights = np.random.default_rng(seed).normal(size=N_PRODUCTS).astype(np.float32)
        path = write_checkpoint(folder / f"linear-{seed}", {"weight": weights}, LINEAR)
    else:
        path = write_checkpoint(folder / f"set-{seed}", random_tensors(32, seed), SET_MLP)
    return f"learned:{path}"


def plain_logits(x, r, c, tensors) -> np.ndarray:
    """Return the logits of n instances, as the format of checkpoints defines them, in float64."""
    x, r, c = (np.asarray(each, np.float64) for each in (x, r, c))
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    seen = np.hstack([x, np.tile(np.concatenate([r, c]), (len(x), 1))])
    h = np.maximum(seen @ w["encoder.weight"].T + w["encoder.bias"], 0)
    both = np.hstack([h, np.tile(h.mean(axis=0), (len(x), 1))])
    g = np.maximum(both @ w["head.weight"].T + w["head.bias"], 0)
    products = np.hstack([x, x * r[2], x * r[3]])  # predicted_output, kv_need
    return (g @ w["out.weight"].T + w["out.bias"] - products @ w["skip.weight"].T)[:, 0]
