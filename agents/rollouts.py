"""Rollout buffers for replicas: advantages against what happened to others with the same luck.

A step's return depends on arrivals and lengths still to come, which no action decides and no critic can know. Replicas
of a group play the same requests in step (agents/fleets.py), so the mean advantage of all at one step, over the same
future, is what the requests did, and the rest what the action did:

    A_t^e = GAE_t^e - mean over the replicas f of e's group of GAE_t^f,   then over its group's standard deviation

An input-dependent baseline (Mao et al., Variance Reduction for Reinforcement Learning in Input-Driven Environments,
ICLR 2019): it does not depend on the action (but for a share of 1/replicas), so it adds no bias. Sub-environments
discount by time, each with a factor of its own, and rewards times 1 - discount are of one size in all: the value of a
state is then minus a mean latency in s (Little's law: requests in the system * time between arrivals), times SCALE.
Advantages of the last horizon of a rollout, which rest on the critic's word about what comes after, are set to 0.
"""

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from stable_baselines3.common.buffers import DictRolloutBuffer

SCALE = 0.1  # of values: mean latencies are of the order of 10 s
# An advantage counts if what comes after the rollout weighs no more than this.
FORGOTTEN = np.exp(-1.0)


class PairedAdvantages:
    """Part of a rollout buffer. discounts float64[N], group_of int64[N]: of each sub-environment."""

    buffer_size: int
    n_envs: int
    gae_lambda: float
    rewards: np.ndarray
    values: np.ndarray
    episode_starts: np.ndarray

    def __init__(self, *args: Any, discounts: np.ndarray, group_of: np.ndarray, **kwargs: Any):
        self.discounts, self.group_of = discounts, group_of
        super().__init__(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Write advantages and returns float32[T, N] (mutates the buffer)."""
        last = last_values.clone().cpu().numpy().flatten()
        ends = np.concatenate([self.episode_starts[1:], dones[None].astype(np.float32)])
        values = np.concatenate([self.values, last[None]])
        keeps = self.discounts * (1.0 - ends)
        scaled = self.rewards * (SCALE * (1.0 - self.discounts))
        deltas = scaled + keeps * values[1:] - values[:-1]
        carried = np.zeros(self.n_envs)
        for t in reversed(range(self.buffer_size)):
            carried = deltas[t] + keeps[t] * self.gae_lambda * carried
            self.advantages[t] = carried
        self.returns = self.advantages + self.values
        steps_left = np.arange(self.buffer_size, 0, -1)[:, None]
        self.advantages = paired(self.advantages, self.group_of)
        self.advantages *= self.discounts**steps_left <= FORGOTTEN


class PairedRolloutBuffer(PairedAdvantages, DictRolloutBuffer):
    """For PPO."""


class PairedMaskableRolloutBuffer(PairedAdvantages, MaskableDictRolloutBuffer):
    """For MaskablePPO."""


def paired(advantages: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """Return float32[T, N] less the mean of its group at each step, over the group's standard deviation."""
    out = np.empty_like(advantages)
    for g in np.unique(group_of):
        here = group_of == g
        of_group = advantages[:, here]
        differences = of_group - of_group.mean(1, keepdims=True) if here.sum() > 1 else of_group
        out[:, here] = differences / (differences.std() + 1e-8)
    return out
