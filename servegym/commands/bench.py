"""`servegym bench`: measured figures against their targets, in benchmarks/."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import tyro

from servegym.commands.arguments import Json, Path, parse

BENCHES = ("speed", "fidelity", "cache", "workloads")
DESCRIPTION = """Measure and compare with the targets in benchmarks/targets.py. Exit code 1: a target is missed.

  speed      requests per CPU-second of the simulator
  fidelity   distance to recorded runs of real engines and of Vidur; needs the data folder
  cache      seconds of a comparison on an empty and on a warm compile cache
  workloads  distance of fitted workloads to the files they were fitted on; needs the data folder

examples:
  servegym bench speed
  servegym bench fidelity --data ~/servegym-data --json"""


@dataclass(kw_only=True)
class Options:
    """What to measure."""

    bench: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="{speed,fidelity,cache,workloads}")
    ]
    """Which figures."""
    json_: Json = False
    """Print one JSON list of {name, value, unit, target, met}."""
    data: Path = None
    """Folder with traces/, step_time/ and reference/ (the environment's SERVEGYM_DATA)."""


def run(arguments: Sequence[str]) -> int:
    """Print the rows of one bench; return 1 if a target is missed."""
    options = parse(Options, arguments, "bench", DESCRIPTION)
    if options.bench not in BENCHES:
        from servegym.traces.names import near_match

        raise ValueError(f"unknown bench {options.bench!r}; {near_match(options.bench, BENCHES)}")
    if options.data is not None:
        if not os.path.isdir(options.data):
            raise ValueError(f"--data {options.data} is no folder")
        os.environ["SERVEGYM_DATA"] = options.data
    from servegym.benchmarks.rows import is_all_met, to_json, to_text

    rows = import_module(f"servegym.benchmarks.{options.bench}").run()
    print(to_json(rows) if options.json_ else to_text(rows))
    return 0 if is_all_met(rows) else 1
