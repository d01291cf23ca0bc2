"""Learned policies: their files (checkpoint.py), and their native forward passes, one file per architecture.

    find_system("learned:FILE")            a shipped name, or a path with or without .safetensors
    linear_policy(weights)                 a candidate in memory: simulate(trace, config, system=candidate)

Training is elsewhere (agents/): a policy here is numbers, and a function without allocation that reads them.
"""

from servegym.baselines.learned.architectures import (
    ARCHITECTURES,
    Architecture,
    LearnedPolicy,
    kinds_of,
    linear_policy,
    load_policy,
    policy_of,
    set_network_policy,
)
from servegym.baselines.learned.checkpoint import (
    Checkpoint,
    feature_names,
    read_checkpoint,
    shipped_names,
    write_checkpoint,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Checkpoint",
    "LearnedPolicy",
    "feature_names",
    "kinds_of",
    "linear_policy",
    "load_policy",
    "policy_of",
    "read_checkpoint",
    "set_network_policy",
    "shipped_names",
    "write_checkpoint",
]
