"""Trace file formats, one file each, and the table of them in the order they are tried.

Our own names come first: a file that has them all means them, whatever else it has.
A format is column names and a clock. To add one: its file, and its line in FORMATS. ServeGen's
client data and files of lengths alone are recognised so that they can be refused with the reason.
"""

from servegym.traces.formats import azure, burstgpt, mooncake, plain, splitwise, vidur, vllm
from servegym.traces.formats.format import Format

FORMATS: tuple[Format, ...] = (
    plain.FORMAT,
    azure.FORMAT,
    burstgpt.FORMAT,
    mooncake.FORMAT,
    vidur.FORMAT,
    vllm.FORMAT,
    splitwise.FORMAT,
)

LENGTH_COLUMNS: tuple[tuple[str, str], ...] = tuple(
    dict.fromkeys((entry.prompt, entry.output) for entry in FORMATS)
)
"""Pairs of prompt and output columns by which a file of lengths alone is recognised."""

__all__ = ["FORMATS", "LENGTH_COLUMNS", "Format"]
