"""Training states: what a training keeps on disk beside OUT, checked before it is taken up again; its lines on stderr.

OUT.state.json is written whole, under another name that is replaced, and is what --resume reads. It is unfinished until
the checkpoint is written, and an unfinished one is never begun anew over.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servegym.baselines.learned.checkpoint import SUFFIX, replace_files
from servegym.simulator.kernel import SIMULATOR_HASH

# What `servegym train` proposes to play beside a dispatch policy; a module that trains another decision has its own.
COMPARE_DISPATCH = (
    "servegym compare --systems learned:{file},least-requests --scenario tight --load .97"
)


@dataclass
class Record:
    """How a training came to be: the command that began it, the last one that took it up again, and its seconds."""

    command: str
    resumed: str = ""
    spent_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)

    @classmethod
    def going_on(cls, kept: Mapping[str, Any], command: str) -> "Record":
        """Return the record of a training that this command takes up again. kept: its state."""
        return cls(kept["command"], command, kept["wall_s"])

    @property
    def wall_s(self) -> float:
        """The seconds that the training has taken, those before it was taken up again included."""
        return self.spent_s + time.monotonic() - self.begun_s

    def for_card(self) -> dict[str, Any]:
        """Return what a card says of it."""
        resumed = {"resumed": self.resumed} if self.resumed else {}
        return {"command": self.command, **resumed, "wall_s": round(self.wall_s, 1)}


def state_file(out: Path) -> Path:
    """Return where the state of a training is kept."""
    return out.with_name(f"{out.name.removesuffix(SUFFIX)}.state.json")


def check_place(out: Path) -> None:
    """Before a training begins anew: say what it replaces; ValueError if an unfinished training would be lost."""
    state = state_file(out)
    if state.is_file() and not _is_finished(state):
        raise ValueError(
            f"{state} is of a training that has not finished; --resume goes on with it; remove it or name another "
            "--out to start again"
        )
    note_replaced(out)


def note_replaced(out: Path) -> None:
    """Say that a checkpoint is replaced, if there is one."""
    file = out.with_name(out.name.removesuffix(SUFFIX) + SUFFIX)
    if file.is_file():
        note(f"{file} is there already; it is replaced when the training has finished")


def _is_finished(state: Path) -> bool:
    try:
        return json.loads(state.read_text())["finished"] is True
    except (ValueError, KeyError, TypeError):
        return False


def write_kept(out: Path, kept: Mapping[str, Any]) -> None:
    """Write the state, unfinished. kept, plain JSON: algorithm, command, options, wall_s, and what its trainer adds."""
    path = state_file(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_files({path: json.dumps({"engine": SIMULATOR_HASH, **kept}).encode()})


def mark_finished(out: Path) -> None:
    """Say in the state that its checkpoint has been written."""
    path = state_file(out)
    kept = json.loads(path.read_text()) | {"finished": True}
    replace_files({path: json.dumps(kept).encode()})


def read_kept(
    out: Path, algorithm: str, identity: Mapping[str, Any], check: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Return the state that write_kept wrote; identity: the options that it must have been begun with.

    check raises ValueError, KeyError or TypeError for a state that is none. ValueError if there is no file, or it is
    no state, or one of another algorithm, of other options or of another version of the simulator.
    """
    path = state_file(out)
    if not path.is_file():
        raise ValueError(f"--resume: there is no {path}")
    try:
        kept = json.loads(path.read_text())
        before, engine = dict(kept["options"]), kept["engine"]
        by, _ = kept["algorithm"], kept["command"]
        float(kept["wall_s"])
        if by == algorithm:
            check(kept)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--resume: {path} is no state of a training ({error})") from None
    if by != algorithm:
        raise ValueError(f"--resume: algorithm = {algorithm!r}; {path} was begun with {by!r}")
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
