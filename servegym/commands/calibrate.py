"""`servegym calibrate`: a profile from measured iterations, with its error on those held out."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from servegym.commands.arguments import GivenNumber, Json, Path, Text, WholeNumber, note, parse

if TYPE_CHECKING:
    from servegym.simulator.calibration import Calibration, HeldOut

DESCRIPTION = """Fit iteration times to a CSV of measured iterations and say how far off they are.

Columns, by header name: prefill_tokens, decode_seqs, kv_tokens (or decode_ctx), prefill_attn (or
prefix_tokens, if no iteration has two prompts), t_ms. docs/calibration.md says how to measure them.

examples:
  servegym calibrate steps.csv
  servegym calibrate steps.csv --name h100/Llama-3.1-8B/tp1 --kv-blocks 28616 --out h100.json
  servegym simulate --profile h100.json --workload azure-conv --rate 40"""

SUFFIXES = re.compile(r"(\.(csv|jsonl|txt|gz))+$")


@dataclass(kw_only=True)
class Options:
    """What to fit."""

    steps: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STEPS.CSV")]
    """Measured iterations, one a row."""
    out: Path = None
    """File for the profile, ending in .json; other commands take it as --profile."""
    name: Text = None
    """device/model/tpN (measured/FILE/tp1)."""
    kv_blocks: WholeNumber = None
    """KV blocks of 16 tokens that an instance has by default."""
    seed: GivenNumber = 0
    """Decides which iterations are held out together (0)."""
    json_: Json = False
    """Print the profile's file instead of tables."""


def run(arguments: Sequence[str]) -> int:
    """Fit, print, and save where asked to."""
    options = parse(Options, arguments, "calibrate", DESCRIPTION)
    from servegym.simulator.calibration import calibrate

    if options.seed < 0:
        raise ValueError(f"--seed {options.seed}; must be >= 0")
    name = f"measured/{stem(options.steps)}/tp1" if options.name is None else options.name
    calibration = calibrate(options.steps, name, options.kv_blocks, options.seed)
    if options.out is not None:
        calibration.save(options.out)
        note(f"wrote {options.out}")
    print(calibration.to_json() if options.json_ else to_text(calibration))
    return 0


def stem(path: str) -> str:
    """Return the file's name without its folder and its suffixes."""
    return SUFFIXES.sub("", os.path.basename(path)) or "steps"


def to_text(calibration: "Calibration") -> str:
    """Return the held-out errors, the coefficients, and what to know before using them."""
    from servegym.simulator.profile import COEFFICIENTS

    row = calibration.profile
    lines = [f"{row.name}: {row.note.partition(';')[0]}", ""]
    lines.append(f"{'held out [%]':<14}{'iterations':>10}{'MAPE':>9}{'P95':>9}{'max':>9}")
    lines += [error_line(part) for part in calibration.held_out]
    lines += ["", f"{'knee_tokens':<24}{row.knee_tokens:>12,}"]
    lines += [f"{name:<24}{getattr(row, name):>12.6g}" for name in COEFFICIENTS]
    lines += ["", *(f"note: {text}" for text in notes(calibration))]
    return "\n".join(lines)


def error_line(part: "HeldOut") -> str:
    """Return one kind's errors; - where there is none."""
    errors = (part.mape_pct, part.p95_pct, part.max_pct)
    shown = "".join(f"{'-' if error is None else f'{error:.2f}':>9}" for error in errors)
    return f"{part.kind:<14}{part.n:>10,}{shown}"


def notes(calibration: "Calibration") -> list[str]:
    """Return what the profile does not know."""
    row = calibration.profile
    found = [
        f"fitted on up to {row.max_prefill_tokens:,} prefill and {row.max_kv_tokens:,} KV tokens an "
        "iteration; a run that goes beyond says so"
    ]
    if calibration.unidentified:
        names = ", ".join(calibration.unidentified)
        found.append(f"these iterations do not determine {names}; left at 0")
    if row.kv_blocks_default is None:
        found.append("no KV blocks given, so every run needs --kv-blocks")
    return found
