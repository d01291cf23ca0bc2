"""The command line that runs a comparison again: what was asked for, under the options' names."""

import shlex
from collections.abc import Mapping
from typing import Any

from servegym.simulator.config import ClusterConfig, Fault


def command_line(options: Mapping[str, Any], config: ClusterConfig) -> str:
    """Return `servegym compare` with the options that were given, and the config's that differ.

    options: names as in Python; None and False are left out.
    """
    default = ClusterConfig()
    changed = {
        name: getattr(config, name)
        for name in ClusterConfig.model_fields
        if getattr(config, name) != getattr(default, name)
    }
    words = ["servegym", "compare"]
    for name, value in {**options, **changed}.items():
        words += option_words(name, value)
    return shlex.join(words)


def option_words(name: str, value: Any) -> list[str]:
    """Return one option as the words of a command line."""
    flag = "--" + name.replace("_", "-")
    if value is None or (value is False and name != "reserve_full_prompt"):
        return []
    if value is True:
        return [flag]
    if value is False:
        return [flag, "false"]
    if isinstance(value, Mapping):
        return [flag, ",".join(f"{key}={number!r}" for key, number in value.items())]
    if isinstance(value, list | tuple):
        return [flag, ",".join(map(word_of, value))]
    return [flag, str(value)]


def word_of(value: Any) -> str:
    """Return one part of a list as a command takes it: a fault as kind:instance:at:duration:factor, None as none."""
    if isinstance(value, Fault):
        times = (value.at_s, value.duration_s, value.factor)
        return ":".join([value.kind, str(value.instance), *map(repr, times)])
    return "none" if value is None else str(value)
