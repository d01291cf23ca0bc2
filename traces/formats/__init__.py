"""Trace file formats, one file each, and the table of them in the order they are tried.

A format is three column names and a function from arrival values to seconds. To add one: its file,
and its line in FORMATS. UNSUPPORTED formats are recognised so that they can be refused by name.
"""

from servegym.traces.formats import azure, mooncake, plain, vidur, vllm
from servegym.traces.formats.format import Format

FORMATS: tuple[Format, ...] = (
    azure.FORMAT,
    mooncake.FORMAT,
    vidur.FORMAT,
    vllm.FORMAT,
    plain.FORMAT,
)

UNSUPPORTED: dict[str, frozenset[str]] = {
    "BurstGPT": frozenset({"Timestamp", "Request tokens", "Response tokens"}),
    "splitwise-sim": frozenset({"arrival_timestamp", "prompt_size", "token_size"}),
}
"""Columns that tell a known format which is not read yet."""

LENGTH_COLUMNS: tuple[tuple[str, str], ...] = tuple(
    dict.fromkeys((entry.prompt, entry.output) for entry in FORMATS)
)
"""Pairs of prompt and output columns by which a file of lengths alone is recognised."""

__all__ = ["FORMATS", "LENGTH_COLUMNS", "UNSUPPORTED", "Format"]
