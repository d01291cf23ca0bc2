"""Labels: one name per request (its category, tenant, model or session), as names and codes.

A name is kept once, and each request has a small code. NOT_RECORDED stands for requests of which a
source does not say it, so that a column is there for all of a trace's requests or for none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.validation import check_codes, frozen

NOT_RECORDED = ""


@dataclass(frozen=True, init=False, eq=False)
class Labels:
    """Names of categories, tenants, models or sessions, and which of them each request has.

    names: distinct labels. codes: int16[n] (int32[n] above 32,768 names), read-only;
    names[codes[r]] is the label of request r.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int16] | NDArray[np.int32]

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
        encoder = LabelEncoder()
        encoder.add(values)
        labels = encoder.labels()
        return cls(labels.names, labels.codes)

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


class LabelEncoder:
    """Turns the values of a label column, chunk by chunk, into codes.

    names: those known beforehand keep their order and come first; the rest are sorted. Missing
    values (None) become NOT_RECORDED.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._code_of = {name: code for code, name in enumerate(names)}
        self._n_given = len(self._code_of)
        self._chunks: list[NDArray[np.int32]] = []

    def add(self, values: Iterable[object], is_kept: NDArray[np.bool_] | None = None) -> None:
        """Take in one value per request; is_kept: only those of these requests."""
        listed = (
            list(values)
            if is_kept is None
            else [value for value, kept in zip(values, is_kept.tolist(), strict=True) if kept]
        )
        names = [NOT_RECORDED if value is None else str(value) for value in listed]
        code_of = self._code_of
        codes = [code_of.setdefault(name, len(code_of)) for name in names]
        self._chunks.append(np.array(codes, dtype=np.int32))

    def labels(self) -> Labels:
        """Return the labels of all requests taken in."""
        codes = np.concatenate([np.zeros(0, np.int32), *self._chunks])
        names = list(self._code_of)
        given, found = names[: self._n_given], sorted(names[self._n_given :])
        order = {name: code for code, name in enumerate([*given, *found])}
        place = np.array([order[name] for name in names], dtype=np.int32)
        return Labels(order, place[codes] if len(codes) else codes)
