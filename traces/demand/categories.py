"""CategoryLengths: tasks with their own output lengths, a mix that changes, and drift.

Output of request i in category c: L * (1 + (factor_c - 1) * r(i)), L from the category's
distribution and r(i) a ramp from 0 at drift.start to 1 at drift.end (a step when they coincide),
then cut at the category's limit, if any, and multiplied by words_per_token when words are counted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed
from servegym.traces.demand.distributions import Distribution
from servegym.traces.demand.requests import Requests, draw_levels
from servegym.traces.labels import Labels


@dataclass(frozen=True)
class LengthDrift:
    """How output lengths change: from request `start` to request `end`, to `factors` of their own."""

    start: int
    end: int
    factors: tuple[float, ...]

    def multiples(self, category: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the factor on the output of each of the first requests."""
        i = np.arange(len(category))
        ramp = np.clip((i - self.start) / max(1, self.end - self.start), 0.0, 1.0)
        reached = ramp if self.end > self.start else (i >= self.start).astype(float)
        return 1.0 + (np.array(self.factors)[category] - 1.0) * reached


@dataclass(frozen=True)
class CategoryLengths:
    """Tenants drawn evenly, categories by the mix of the phase, outputs by category.

    starts: the first request of each phase. mixes: shares of the categories, a row for each phase.
    limits: most output tokens of each category, None for no limit. drift: None for none.
    """

    tenants: tuple[str, ...]
    categories: tuple[str, ...]
    starts: tuple[int, ...]
    mixes: tuple[tuple[float, ...], ...]
    prompt: Distribution
    outputs: tuple[Distribution, ...]
    limits: tuple[int, ...] | None = None
    words_per_token: float = 1.0
    drift: LengthDrift | None = None
    planned_requests: int = 3_000

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt."""
        return self.prompt.mean

    @property
    def mean_output_tokens(self) -> float:
        """Mean output of the planned requests, over 20 draws of them with fixed seeds."""
        return float(
            np.mean([self.draw(self.planned_requests, s).output_tokens for s in range(20)])
        )

    def draw(self, n: int, seed: Seed, tenant: Labels | None = None) -> Requests:
        """Return n requests."""
        if tenant is None:
            level = draw_levels(n, seed, "tenants")
            tenant = Labels(self.tenants, np.floor(level * len(self.tenants)))
        category = self.draw_category(n, seed)
        prompts = self.prompt.quantile(draw_levels(n, seed, "prompt_tokens"))
        outputs = self.draw_outputs(category, draw_levels(n, seed, "output_tokens"))
        return Requests(prompts, outputs, Labels(self.categories, category), tenant)

    def draw_category(self, n: int, seed: Seed) -> NDArray[np.int64]:
        """Return the category of each request."""
        phase = np.searchsorted(self.starts, np.arange(n), side="right") - 1
        edges = np.cumsum(self.mixes, axis=1)[phase]
        edges /= edges[:, -1:]
        return (draw_levels(n, seed, "categories")[:, None] >= edges).sum(axis=1)

    def draw_outputs(
        self, category: NDArray[np.int64], levels: NDArray[np.float64]
    ) -> NDArray[np.int32]:
        """Return output lengths: drawn, drifted, cut, counted."""
        tokens = np.zeros(len(category))
        for c, distribution in enumerate(self.outputs):
            rows = category == c
            tokens[rows] = distribution.quantile(levels[rows])
        if self.drift is not None:
            tokens *= self.drift.multiples(category)
        if self.limits is not None:
            tokens = np.minimum(tokens, np.array(self.limits)[category])
        return np.maximum(np.rint(tokens * self.words_per_token), 1.0).astype(np.int32)
