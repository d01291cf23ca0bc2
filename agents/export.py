"""From torch to native: the actor as the tensors of a `set-mlp` checkpoint, and back.

    write_network(network, "out/mine", card)      then learned:out/mine is a system, without torch

SHARPNESS and the units of the linear score are folded into its weights, so that native logits are torch's: within 1e-5
of the largest one of a state, or of 1, as both add up float32, in another order. The critic stays behind. Nothing is
unpickled in either direction.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from servegym.agents.set_policy import SHARPNESS, UNITS, SetNetwork
from servegym.baselines.learned import (
    LearnedPolicy,
    read_checkpoint,
    set_network_policy,
    write_checkpoint,
)

# From a parameter of the network to the tensor of that name: what its forward pass multiplies by.
FACTORS: Mapping[str, Any] = {"skip.weight": SHARPNESS / UNITS}


def tensors_of_network(network: SetNetwork) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint, float32 copies by name."""
    return {
        name: (tensor.numpy() * FACTORS.get(name, 1.0)).astype(np.float32)
        for name, tensor in network.state_dict().items()
    }


def network_of_tensors(tensors: Mapping[str, np.ndarray]) -> SetNetwork:
    """Return the network whose tensors these are."""
    network = SetNetwork(len(tensors["encoder.bias"]))
    network.load_state_dict(
        {
            name: torch.from_numpy((tensor / FACTORS.get(name, 1.0)).astype(np.float32))
            for name, tensor in tensors.items()
        }
    )
    return network


def native_policy(network: SetNetwork) -> LearnedPolicy:
    """Return the network as a policy that simulate() plays."""
    return set_network_policy(tensors_of_network(network))


def read_network(file: str | Path) -> SetNetwork:
    """Return the network of a checkpoint, by shipped name or path; ValueError if it is no set-mlp for dispatch."""
    checkpoint = read_checkpoint(file)
    design = checkpoint.card["decision"], checkpoint.card["architecture"]
    if design != ("dispatch", "set-mlp"):
        raise ValueError(
            f"{file} is of {design[1]} for {design[0]}; must be set-mlp for dispatch (clone it first)"
        )
    return network_of_tensors(checkpoint.tensors)


def write_network(network: SetNetwork, path: str | Path, card: Mapping[str, Any]) -> Path:
    """Write PATH.safetensors and PATH.json, and return the first; card: what is to be said of the training."""
    design = {"decision": "dispatch", "architecture": "set-mlp", "hidden": network.hidden}
    return write_checkpoint(path, tensors_of_network(network), design | dict(card))
