"""Labels: one name per request (its category or tenant), kept as names and int16 codes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.validation import check_codes, frozen


@dataclass(frozen=True, init=False, eq=False)
class Labels:
    """Names of categories or tenants, and which of them each request has.

    names: distinct labels. codes: int16[n], read-only; names[codes[r]] is the label of request r.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int16]

    def __init__(self, names: Iterable[str], codes: ArrayLike) -> None:
        """Check that names are distinct and codes in range; ValueError says which is not."""
        listed = tuple(names)
        if len(set(listed)) != len(listed):
            raise ValueError(f"label names = {listed}; must be distinct")
        checked = check_codes("label codes", codes, len(listed))
        object.__setattr__(self, "names", listed)
        object.__setattr__(self, "codes", frozen(checked))

    @classmethod
    def of(cls, values: Iterable[object]) -> Self:
        """Build from one value per request; names are kept in sorted order."""
        texts = np.array([str(value) for value in values], dtype=object)
        names, codes = np.unique(texts, return_inverse=True)
        return cls((str(name) for name in names), codes)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.codes)

    def take(self, rows: slice | NDArray[np.int64]) -> Self:
        """Return the labels of some requests, all names kept so that codes stay comparable."""
        return type(self)(self.names, self.codes[rows])

    def __setstate__(self, state: dict) -> None:
        """Unpickled arrays come back writable: make them read-only again."""
        self.__dict__.update(state)
        self.codes.setflags(write=False)
