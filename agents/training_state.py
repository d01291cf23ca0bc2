"""Training states: what a training keeps on disk, checked before it is taken up again; and its lines on stderr."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servegym.simulator.kernel import SIMULATOR_HASH

# What `servegym train` proposes to play beside a dispatch policy; a module that trains another decision has its own.
COMPARE_DISPATCH = (
    "servegym compare --systems learned:{file},least-requests --scenario tight --load .97"
)


def read_kept(
    path: Path, identity: Mapping[str, Any], check: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Return the state in a JSON file; identity: the options that it must have been begun with.

    check raises ValueError, KeyError or TypeError for a state that is none. ValueError if there is no file, or it is
    no state, or one of other options or of another version of the simulator.
    """
    if not path.is_file():
        raise ValueError(f"--resume: there is no {path}")
    try:
        kept = json.loads(path.read_text())
        before, engine = dict(kept["options"]), kept["engine"]
        float(kept["wall_s"])
        check(kept)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--resume: {path} is no state of a training ({error})") from None
    for name, value in identity.items():
        if name not in before:
            raise ValueError(f"--resume: {path} was begun by a version that had no {name}")
        if before[name] != value:
            raise ValueError(
                f"--resume: {name} = {value!r}; {path} was begun with {before[name]!r}"
            )
    if engine != SIMULATOR_HASH:
        raise ValueError(f"--resume: {path} was begun with another version of the simulator")
    return kept


def note(text: str) -> None:
    """Print a line that is no result."""
    print(text, file=sys.stderr, flush=True)
