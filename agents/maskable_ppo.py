"""MaskablePPO: as `--algo ppo`, with the environment's masks of the instances that accept a request.

    servegym train dispatch --algo maskable-ppo --seed 0 --out out/maskable

MaskablePPO of sb3-contrib (Huang and Ontañón, A Closer Look at Invalid Action Masking in Policy Gradient Algorithms,
2022). The instance-set policy knows the masks itself, by the feature `accepts`, so for Dispatch both sample the same
legal actions; masks matter to networks that do not. All else, options included, is said in agents/ppo.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servegym.agents import ppo
from servegym.agents.rollouts import PairedMaskableRolloutBuffer
from servegym.agents.set_policy import MaskableSetPolicy

from sb3_contrib import MaskablePPO  # isort: skip  # after set_policy, which names the extra

DECISIONS = ("dispatch",)
COMPARE = ppo.COMPARE
MASKABLE = ppo.Algorithm(
    "maskable-ppo", MaskablePPO, MaskableSetPolicy, PairedMaskableRolloutBuffer
)


@dataclass(kw_only=True)
class Options(ppo.Options):
    """What to train, and how."""

    out: Path = Path("out/maskable-ppo")
    """Where the checkpoint goes: OUT.safetensors and OUT.json; OUT.state.* while it trains."""


def train(options: Options, command: str) -> dict[str, Any]:
    """Train, write the checkpoint and return its card (see ppo.train)."""
    return ppo.train(options, command, MASKABLE)
