"""What a trace format is: the names of its columns, and how its arrival values become seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.traces.validation import Where, to_numbers


def seconds(values: Sequence[Any], where: Where) -> NDArray[np.float64]:
    """Read arrivals that are already seconds; ValueError names one that is no number."""
    return to_numbers("arrival_s", values, where).astype(np.float64)


@dataclass(frozen=True)
class Format:
    """One public format.

    name: what users call it. arrival, prompt, output: its column names. to_seconds: from arrival
    values, as read, to float64[n] in s; ValueError names the row it cannot read.
    """

    name: str
    arrival: str
    prompt: str
    output: str
    to_seconds: Callable[[Sequence[Any], Where], NDArray[np.float64]] = seconds

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns a file must have."""
        return self.arrival, self.prompt, self.output

    def missing(self, header: Sequence[str]) -> list[str]:
        """Return the columns that a header lacks; empty when the file is of this format."""
        return [column for column in self.columns if column not in header]
