"""concat: several traces played together, as one. It is a method of Trace.

Requests keep their own times, so shift a trace first to play it after another. Equal times keep the
order of the traces.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from servegym.traces.labels import NOT_RECORDED, LabelEncoder, Labels
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.selection import ARRAYS

if TYPE_CHECKING:
    from servegym.traces.trace import Trace

LABELS = ("category", "tenant", "model", "session")


def concat(trace: "Trace", *others: "Trace") -> "Trace":
    """Return the requests of all these traces in order of arrival.

    Labels are joined by name, and requests of a trace without them get "" (not recorded). Prefix
    block ids of different sources are kept apart; ValueError if their blocks differ in size.
    """
    parts = (trace, *others)
    times = np.concatenate([part.arrival_s for part in parts])
    order = np.argsort(times, kind="stable")
    blocks = joined_blocks(parts)
    sizes = " + ".join(f"{len(part):,}" for part in parts)
    return replace(
        trace,
        arrival_s=times[order],
        **{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in ARRAYS},
        **{name: joined_labels(name, parts, order) for name in LABELS},
        prefix_blocks=None if blocks is None else blocks.take(order),
        resolution_s=max(part.resolution_s or 0.0 for part in parts) or None,
        name=" + ".join(unique(part.name for part in parts)),
        source="; ".join(unique(part.source for part in parts)),
        notes=(*(note for part in parts for note in part.notes), f"joined {sizes} requests"),
        report=None,
    )


def joined_labels(name: str, parts: Sequence["Trace"], order: NDArray[np.int64]) -> Labels | None:
    """Return one label column for all parts' requests, in order, None when no part has it."""
    columns: list[Labels | None] = [getattr(part, name) for part in parts]
    if all(column is None for column in columns):
        return None
    encoder = LabelEncoder()
    for column, part in zip(columns, parts, strict=True):
        if column is None:
            encoder.add([NOT_RECORDED] * len(part))
        else:
            encoder.add(column.names[code] for code in column.codes.tolist())
    return encoder.labels().take(order)


def joined_blocks(parts: Sequence["Trace"]) -> PrefixBlocks | None:
    """Return the prefix blocks of all parts' requests; ids are renumbered if sources differ."""
    sizes = {part.prefix_blocks.block_tokens for part in parts if part.prefix_blocks is not None}
    if not sizes:
        return None
    if len(sizes) > 1:
        raise ValueError(f"prefix blocks of {sorted(sizes)} tokens; must be of one size to join")
    (block_tokens,) = sizes
    nothing = [PrefixBlocks([], np.zeros(len(part) + 1), block_tokens) for part in parts]
    blocks = [
        empty if part.prefix_blocks is None else part.prefix_blocks
        for part, empty in zip(parts, nothing, strict=True)
    ]
    joined = PrefixBlocks.concat(blocks, block_tokens)
    sources = [part.source for part in parts]
    if len(set(sources)) == 1:
        return joined
    source_of_id = np.repeat(
        [sources.index(source) for source in sources], [len(part.ids) for part in blocks]
    )
    pairs = np.stack([source_of_id, joined.ids])
    renumbered = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    return PrefixBlocks(renumbered, joined.offsets, block_tokens)


def unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetitions and empty ones, in order."""
    return [text for text in dict.fromkeys(texts) if text]
