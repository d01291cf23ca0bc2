"""Distributions of token counts, each as its inverse: quantile(u) for uniform u in [0, 1].

Drawing by inversion keeps workloads comparable: one uniform number a request, whatever the shape.
Zipf is the generator of YCSB (Gray et al., SIGMOD 1994) as Vidur has it, whose normaliser leaves
out the last rank; PowerLaw is Llumnix's (OSDI '24): ranks scaled to a mean, rounded up, capped.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from servegym.traces.demand.guide_table import GuideTable

Levels = NDArray[np.floating]
Tokens = NDArray[np.int32]


class Distribution(Protocol):
    """A frozen dataclass with a mean, tokens, and an inverse."""

    @property
    def mean(self) -> float:
        """Mean, tokens."""
        ...

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts, int32, of the same shape as levels (in [0, 1])."""
        ...


@dataclass(frozen=True)
class QuantileTable:
    """The quantiles of data.

    levels: increasing from 0 to 1. values: tokens, values[k] the quantile at levels[k]; between
    them it is linear, rounded to whole tokens. mean: of the data itself, tokens.
    """

    levels: tuple[float, ...]
    values: tuple[int, ...]
    mean: float

    @cached_property
    def table(self) -> GuideTable:
        """The same, to look up in."""
        return GuideTable(self.levels, self.values)

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts."""
        return np.rint(self.table.interpolate(levels)).astype(np.int32)


@dataclass(frozen=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def __post_init__(self) -> None:
        """Check the length."""
        require_tokens("tokens", self.tokens)

    @property
    def mean(self) -> float:
        """The length itself."""
        return float(self.tokens)

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts."""
        return np.full(np.shape(levels), self.tokens, np.int32)


@dataclass(frozen=True)
class Uniform:
    """Whole numbers from least to most, both included, equally often."""

    least: int
    most: int

    def __post_init__(self) -> None:
        """Check the bounds."""
        require_tokens("least", self.least)
        require_tokens("most", self.most, self.least)

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.least + self.most) / 2.0

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts."""
        steps = np.floor(np.asarray(levels) * (self.most - self.least + 1))
        return (self.least + np.minimum(steps, self.most - self.least)).astype(np.int32)


@dataclass(frozen=True)
class PowerLaw:
    """Rank r of 1 .. 2*scale_to - 1 with probability ~ r^-exponent; its length is proportional to r.

    Lengths are scaled so that their mean is scale_to, then rounded up and cut at cap.
    """

    exponent: float
    scale_to: int
    cap: int

    def __post_init__(self) -> None:
        """Check every field."""
        require_tokens("scale_to", self.scale_to)
        require_tokens("cap", self.cap)

    @cached_property
    def table(self) -> tuple[NDArray[np.float64], Tokens]:
        """Cumulative probability and length of each rank."""
        ranks = np.arange(1, 2 * self.scale_to)
        weights = ranks**-self.exponent / (ranks**-self.exponent).sum()
        lengths = np.ceil(ranks * self.scale_to / (weights @ ranks))
        return np.cumsum(weights), np.minimum(lengths, self.cap).astype(np.int32)

    @property
    def mean(self) -> float:
        """The mean after rounding and the cut, so not exactly scale_to."""
        cumulative, lengths = self.table
        return float(np.diff(cumulative, prepend=0.0) @ lengths)

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts."""
        cumulative, lengths = self.table
        found = np.searchsorted(cumulative, levels, side="right")
        return lengths[np.minimum(found, len(lengths) - 1)]


@dataclass(frozen=True)
class Zipf:
    """Whole numbers from least to most; least + r with probability ~ (r + 1)^-exponent, nearly."""

    exponent: float
    least: int
    most: int

    def __post_init__(self) -> None:
        """Check every field; the formula has no value at exponent 1."""
        require_tokens("least", self.least)
        require_tokens("most", self.most, self.least + 2)
        if not self.exponent > 0.0 or self.exponent == 1.0:
            raise ValueError(f"exponent = {self.exponent}; must be > 0 and not 1")

    @property
    def mean(self) -> float:
        """The mean of the formula below, by the midpoints of 100,000 levels."""
        return float(self.quantile((np.arange(100_000) + 0.5) / 1e5).mean())

    def quantile(self, levels: Levels) -> Tokens:
        """Return token counts."""
        u, n, theta = (
            np.asarray(levels, dtype=np.float64),
            self.most - self.least + 1,
            self.exponent,
        )
        total = (np.arange(1, n) ** -theta).sum()
        eta = (1.0 - (2.0 / n) ** (1.0 - theta)) / (1.0 - 1.0 / total)
        rank = np.floor(n * (eta * u - eta + 1.0) ** (1.0 / (1.0 - theta)))
        rank = np.where(u * total < 1.0, 0.0, np.where(u * total < 1.0 + 0.5**theta, 1.0, rank))
        return (self.least + np.minimum(rank, n - 1)).astype(np.int32)


def require_tokens(field: str, value: int, least: int = 1) -> None:
    """Refuse a length that is no whole number or below least."""
    if int(value) != value or value < least:
        raise ValueError(f"{field} = {value}; must be a whole number >= {least}")
