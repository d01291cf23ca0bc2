"""Cases of the kind headroom: the shipped policies that go by freeness, their random parameters and their twins.

Parameters are drawn wide: headroom up to a whole instance, bands and thresholds that free blocks cross all the time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from reference.headroom import RESERVE, VECTOR, FreenessScaling, LlumnixDispatch, NTierDispatch
from reference.headroom_moves import LlumnixMigration, NTierMigration

from servegym.simulator.profiles import profiles

# Kind of policy and name: its twin, made from the number of tiers and the parameters.
SHIPPED: dict[tuple[str, str], Callable[..., Any]] = {
    ("dispatch", "n-tier"): NTierDispatch,
    ("dispatch", "llumnix-dispatch"): LlumnixDispatch,
    ("migration", "n-tier"): NTierMigration,
    ("migration", "llumnix"): LlumnixMigration,
    ("scaling", "freeness"): FreenessScaling,
}
MOST_TIERS = 5


def shipped(rng: np.random.Generator, config: dict[str, Any], span_s: float) -> dict[str, Any]:
    """Return 1 to 5 tiers, dispatch, migration or none, and scaling where the case scales."""
    dispatch = str(rng.choice(["n-tier", "n-tier", "llumnix-dispatch"]))
    migration = [None, "n-tier", "n-tier", "llumnix", "llumnix"][rng.integers(0, 5)]
    chosen = {
        "tiers": int(rng.integers(1, MOST_TIERS + 1)),
        "dispatch": dispatch,
        "dispatch_params": _dispatch_params(rng, config, dispatch),
        "migration": migration,
        "migration_params": _migration_params(rng, config, migration),
        # not an hour of ticks for a request that no instance takes any more
        "max_hold_s": config.get("max_hold_s", 0.5),
        "link_gb_per_s": _link_gb_per_s(rng, config),
    }
    if rng.random() < 0.5:
        chosen["order"] = "priority"
    if config.get("scaling") is not None:
        chosen |= {"scaling": "freeness", "scaling_params": _scaling_params(rng)}
    return chosen


def _link_gb_per_s(rng: np.random.Generator, config: dict[str, Any]) -> float:
    """Return a link that copies a block in some 0.1 to 3 ms: else copies queue for minutes after the last request."""
    names = config["profile"] if isinstance(config["profile"], tuple) else (config["profile"],)
    bytes_per_token = max(profiles()[name].kv_bytes_per_token or 0 for name in names)
    block_ms = float(rng.choice([0.1, 0.3, 1.0, 3.0]))
    return bytes_per_token * config["block_size"] / block_ms * 1e-6


def _dispatch_params(
    rng: np.random.Generator, config: dict[str, Any], name: str
) -> dict[str, float]:
    return _headroom(rng) if name == "n-tier" else _reserve(rng, config)


def _migration_params(
    rng: np.random.Generator, config: dict[str, Any], name: str | None
) -> dict[str, float]:
    closer = {"closer": int(rng.random() < 0.6)}
    if name == "n-tier":
        threshold, margin = float(rng.choice([0, 0.1, 0.3, 2])), float(rng.choice([0, 0.1, 1, 20]))
        slots = {"slots": int(rng.integers(0, 4))}
        return {**_headroom(rng), "threshold": threshold, "margin": margin, **closer, **slots}
    if name == "llumnix":
        threshold, shortest = float(rng.choice([-2, 1, 3, 10, 40])), int(rng.random() < 0.5)
        return {
            **_reserve(rng, config),
            "threshold": threshold,
            "shortest": shortest,
            "slots": int(rng.integers(0, 3)),
            **closer,
        }
    return {}


def _scaling_params(rng: np.random.Generator) -> dict[str, float]:
    low, high = sorted([rng.choice([-5, -0.5, 2, 10]), rng.choice([1.5, 5, 20, 80])])
    return {
        **_headroom(rng),
        "signal": int(rng.random() < 0.4),
        "low": float(low),
        "high": float(high),
        "cooldown_s": float(rng.choice([0, 0.02, 0.1, 10])),
    }


def _headroom(rng: np.random.Generator) -> dict[str, float]:
    params: dict[str, float] = {
        "headroom": int(rng.random() < 0.9),
        "form": int(rng.integers(0, 4)),
        "peak": float(rng.choice([0.05, 0.2, 0.2, 0.6, 1.0])),
        "decay": float(rng.choice([0, 0.7, 2.5, 2.5, 8])),
    }
    if params["form"] == RESERVE:
        params["reserve_tokens"] = int(rng.choice([0, 40, 200, 1600]))
    if params["form"] == VECTOR:
        shares = rng.choice([0.0, 0.1, 0.3, 0.9], MOST_TIERS)
        params |= {f"h{p}": float(share) for p, share in enumerate(shares)}
    return params


def _reserve(rng: np.random.Generator, config: dict[str, Any]) -> dict[str, float]:
    """Return Llumnix's parameters: the binary reserve, headroom by tier, or neither."""
    switch = int(rng.choice([0, 1, 1, 1, 2, 2]))
    return {**_headroom(rng), "headroom": switch, "reserve_tokens": _spare_tokens(rng, config)}


def _spare_tokens(rng: np.random.Generator, config: dict[str, Any]) -> int:
    part = float(rng.choice([0, 0.2, 0.5, 2]))
    return int(part * config["kv_blocks"] * config["block_size"]) + int(rng.integers(0, 3))
