"""Parsing of a command's options with tyro: types with short help, and errors of one line.

A command's options are a dataclass; the text under a field is its help. tyro prints errors as a
box of several lines, which is condensed here to the first paragraph and the nearest option.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import dropwhile, takewhile
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

Options = TypeVar("Options")


def value(convert: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec:
    """Return tyro's description of an option that takes one value; None is its absence."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: convert(texts[0]),
        is_instance=lambda _: True,
        str_from_instance=lambda instance: [str(instance)],
    )


def whole_number(text: str) -> int:
    """Read 10000 or 10_000; ValueError for anything else."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """Read a number; ValueError for anything else."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def truth(text: str) -> bool:
    """Read true or false; ValueError for anything else."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def names(text: str) -> list[str]:
    """Split a list at its commas; "d=3,e=4" after a colon belongs to the name before it."""
    parts = re.split(r",(?![^,:]*=)", text)
    return [part.strip() for part in parts if part.strip()]


def numbers(text: str) -> list[float]:
    """Read "1,2.5"; ValueError for anything else."""
    return [number(part) for part in text.split(",")]


def settings(text: str) -> dict[str, float]:
    """Read "name=number,name=number"; ValueError for anything else."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key and sign for key, sign, _ in pairs):
        raise ValueError(f"{text!r} is not name=number,name=number")
    return {key.strip(): number(amount) for key, _, amount in pairs}


def limits(text: str) -> float | tuple[float | None, ...]:
    """Read one number, or one a tier with "none" for no limit: 10,60,none."""
    found = tuple(None if part.strip() == "none" else number(part) for part in text.split(","))
    return found[0] if len(found) == 1 and found[0] is not None else found


FAULT_PARTS: tuple[str, ...] = ("kind", "instance", "at_s", "duration_s", "factor")


def faults(text: str) -> list[dict[str, str]]:
    """Read kind:instance:at:duration[:factor],...; ClusterConfig judges the values. ValueError for anything else."""
    found = [
        dict(zip(FAULT_PARTS, part.strip().split(":"), strict=False)) for part in text.split(",")
    ]
    for part, fault in zip(text.split(","), found, strict=True):
        if not 4 <= part.count(":") + 1 == len(fault):
            raise ValueError(
                f"{part!r} is not kind:instance:at:duration or kind:instance:at:duration:factor"
            )
    return found


QUIET = arg(help_behavior_hint="")  # helps state their defaults themselves
Text = Annotated[str | None, value(str, "NAME"), QUIET]
Path = Annotated[str | None, value(str, "PATH"), QUIET]
Number = Annotated[float | None, value(number, "X"), QUIET]
WholeNumber = Annotated[int | None, value(whole_number, "N"), QUIET]
GivenNumber = Annotated[int, value(whole_number, "N"), QUIET]
Truth = Annotated[bool | None, value(truth, "{true,false}"), QUIET]
Names = Annotated[list[str] | None, value(names, "NAME,NAME"), QUIET]
Numbers = Annotated[list[float] | None, value(numbers, "X,X"), QUIET]
Settings = Annotated[dict[str, float] | None, value(settings, "NAME=X,..."), QUIET]
Limits = Annotated[float | tuple[float | None, ...] | None, value(limits, "X[,X]"), QUIET]
Faults = Annotated[list[dict[str, str]] | None, value(faults, "KIND:I:AT:FOR"), QUIET]
Flag = Annotated[bool, QUIET]
Json = Annotated[bool, arg(name="json", help_behavior_hint="")]


def parse(kind: type[Options], arguments: Sequence[str], command: str, description: str) -> Options:
    """Return a command's options; --help prints and exits 0, ValueError says what is wrong."""
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=f"servegym {command}",
                description=description,
                args=list(arguments),
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise ValueError(condense(complaint.getvalue())) from None


def condense(box: str) -> str:
    """Return the first paragraph of tyro's box, and the nearest option where it offers one."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]  # the first line is the title
    message = " ".join(takewhile(lambda line: not is_rule(line), dropwhile(is_rule, lines)))
    message = re.sub(r"^Missing from servegym \w+:", "missing", message)
    message = message[:1].lower() + message[1:]
    near = re.search(r"Perhaps you meant:\s+(--[\w-]+)", " ".join(lines))
    return f"{message}; did you mean {near[1]}?" if near else message


def is_rule(line: str) -> bool:
    """Return whether a line is empty or drawn, in box characters or in ASCII."""
    return not line.strip("─-╰╯")


def one_line(text: str) -> str:
    """Return the text without line breaks and doubled spaces."""
    return " ".join(text.split())


def note(text: str) -> None:
    """Print a line that is no result: on stderr, so that stdout stays clean."""
    print(text, file=sys.stderr)


def make_folder(folder: str | None) -> None:
    """Make the folder of the results before the work, not after it; OSError names what cannot be made."""
    if folder == "":
        raise ValueError("--out is empty; name a folder")
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
