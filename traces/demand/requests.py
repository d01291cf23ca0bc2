"""Requests and the models that draw them: prompt and output lengths, and labels where known.

Independent draws the two lengths on their own: in production traffic their correlation is close to
zero, and what there is comes from a mix of tenants or tasks (tenants.py, categories.py). Split
divides a total.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed
from servegym.traces.demand.distributions import Distribution
from servegym.traces.labels import Labels
from servegym.traces.streams import stream


class Requests(NamedTuple):
    """What n requests ask for: tokens, int32[n], and labels where the model has them."""

    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    category: Labels | None = None
    tenant: Labels | None = None


class Demand(Protocol):
    """A frozen dataclass that draws requests. The first m of n are the same for every n >= m."""

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt of a request."""
        ...

    @property
    def mean_output_tokens(self) -> float:
        """Mean output of a request."""
        ...

    def draw(self, n: int, seed: Seed, tenant: Labels | None = None) -> Requests:
        """Return n requests. tenant: whose they are, when the arrivals have settled that."""
        ...


def draw_levels(n: int, seed: Seed, name: str) -> NDArray[np.float64]:
    """Return n uniform numbers in [0, 1) of a named stream."""
    return stream(seed, name).random(n)


@dataclass(frozen=True)
class Independent:
    """Prompt and output lengths that know nothing of each other."""

    prompt: Distribution
    output: Distribution

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt."""
        return self.prompt.mean

    @property
    def mean_output_tokens(self) -> float:
        """Mean output."""
        return self.output.mean

    def draw(self, n: int, seed: Seed, tenant: Labels | None = None) -> Requests:
        """Return n requests."""
        prompts = self.prompt.quantile(draw_levels(n, seed, "prompt_tokens"))
        outputs = self.output.quantile(draw_levels(n, seed, "output_tokens"))
        return Requests(prompts, outputs, tenant=tenant)


@dataclass(frozen=True)
class Split:
    """A total length, of which one part in prompt_to_output + 1 is output, rounded."""

    total: Distribution
    prompt_to_output: float

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt, up to rounding."""
        return self.total.mean - self.mean_output_tokens

    @property
    def mean_output_tokens(self) -> float:
        """Mean output, up to rounding."""
        return self.total.mean / (self.prompt_to_output + 1.0)

    def draw(self, n: int, seed: Seed, tenant: Labels | None = None) -> Requests:
        """Return n requests; neither part is ever empty."""
        totals = self.total.quantile(draw_levels(n, seed, "total_tokens"))
        outputs = np.rint(totals / (self.prompt_to_output + 1.0)).astype(np.int32)
        outputs = np.clip(outputs, 1, totals - 1)
        return Requests(totals - outputs, outputs, tenant=tenant)
