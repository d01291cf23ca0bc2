"""PrefixBlocks: the ids of the blocks of each prompt; equal ids hold equal tokens.

Two prompts share a prefix as far as their ids agree from the start (Mooncake's hash_ids, one a 512
tokens). One flat array and offsets, since a list a request would cost ten times the memory. The
simulator does not read them yet: it has no prefix cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.validation import frozen


@dataclass(frozen=True, init=False, eq=False)
class PrefixBlocks:
    """Block ids of n requests, read-only.

    ids: int64[m], all requests' ids in a row. offsets: int64[n + 1]; request r has
    ids[offsets[r]:offsets[r + 1]]. block_tokens: tokens in a block; a prompt's last may be partial.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    block_tokens: int

    def __init__(self, ids: ArrayLike, offsets: ArrayLike, block_tokens: int) -> None:
        """Check that offsets rise from 0 to the number of ids and block_tokens is >= 1."""
        flat = np.array(ids, dtype=np.int64).reshape(-1)
        edges = np.array(offsets, dtype=np.int64)
        if edges.ndim != 1 or not len(edges) or (np.diff(edges, prepend=0) < 0).any():
            raise ValueError("prefix block offsets must rise from 0, one more than requests")
        if edges[0] != 0 or edges[-1] != len(flat):
            shown = f"{edges[0]} to {edges[-1]}"
            raise ValueError(f"prefix block offsets run from {shown}; must be 0 to {len(flat)}")
        if block_tokens < 1:
            raise ValueError(f"block_tokens = {block_tokens}; must be >= 1")
        object.__setattr__(self, "ids", frozen(flat))
        object.__setattr__(self, "offsets", frozen(edges))
        object.__setattr__(self, "block_tokens", int(block_tokens))

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], block_tokens: int) -> Self:
        """Build from one list of ids per request."""
        offsets = np.cumsum([0, *(len(ids) for ids in lists)])
        flat = np.array([block for ids in lists for block in ids], dtype=np.int64)
        return cls(flat, offsets, block_tokens)

    @classmethod
    def concat(cls, parts: Sequence[Self], block_tokens: int) -> Self:
        """Return the ids of all parts' requests, one part after the other."""
        counts = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
        ids = [np.zeros(0, np.int64), *(part.ids for part in parts)]
        return cls(np.concatenate(ids), np.cumsum(np.concatenate(counts)), block_tokens)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.offsets) - 1

    def of_request(self, r: int) -> NDArray[np.int64]:
        """Return the block ids of request r, from the start of its prompt."""
        return self.ids[self.offsets[r] : self.offsets[r + 1]]

    def take(self, rows: slice | NDArray[np.integer] | NDArray[np.bool_]) -> Self:
        """Return the ids of some requests."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, stop, _ = rows.indices(len(self))
            edges = self.offsets[first : max(first, stop) + 1]
            return type(self)(self.ids[edges[0] : edges[-1]], edges - edges[0], self.block_tokens)
        starts, counts = self.offsets[:-1][rows], np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return type(self)(self.ids[np.repeat(starts, counts) + within], offsets, self.block_tokens)

    def reuse_share(self) -> float | None:
        """Return the share of blocks that an unlimited cache, filled in order, would already hold.

        A block counts when it and all before it in its prompt were seen. None without blocks.
        """
        seen: set[int] = set()
        n_reused = 0
        for r in range(len(self)):
            blocks = self.of_request(r).tolist()
            n_known = next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))
            n_reused += n_known
            seen.update(blocks[n_known:])
        return n_reused / len(self.ids) if len(self.ids) else None

    def __setstate__(self, state: dict) -> None:
        """Unpickled arrays come back writable: make them read-only again."""
        self.__dict__.update(state)
        self.ids.setflags(write=False)
        self.offsets.setflags(write=False)
