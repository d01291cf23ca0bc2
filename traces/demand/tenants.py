"""TenantLengths: each tenant has its own length distributions; requests take the tenant's.

The mix of tenants is what correlates prompts with outputs and makes the tail of the whole.
Source: ServeGen (Xiang et al., arXiv 2505.09999): few clients carry most requests, each with
lengths of its own. Changes of a client's lengths during the day are averaged out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed
from servegym.traces.demand.requests import Requests, draw_levels
from servegym.traces.labels import Labels

Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TenantLengths:
    """Quantile tables by tenant.

    names: of the tenants. shares: of all requests. levels: increasing from 0 to 1, one for each
    column of prompt_quantiles and output_quantiles (tokens, a row for each tenant; linear between
    levels). The means are those of the data, request-weighted.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    levels: tuple[float, ...]
    prompt_quantiles: Table
    output_quantiles: Table
    mean_prompt_tokens: float
    mean_output_tokens: float

    def draw(self, n: int, seed: Seed, tenant: Labels | None = None) -> Requests:
        """Return n requests; without a tenant, drawn by share. ValueError for other tenants."""
        if tenant is None:
            edges = np.cumsum(self.shares) / sum(self.shares)
            codes = np.searchsorted(edges, draw_levels(n, seed, "tenants"), side="right")
            tenant = Labels(self.names, codes)
        if tenant.names != self.names:
            raise ValueError(f"the arrivals have tenants {tenant.names[:3]}...; not the workload's")
        prompts = self.lengths(self.prompt_quantiles, tenant, draw_levels(n, seed, "prompt_tokens"))
        outputs = self.lengths(self.output_quantiles, tenant, draw_levels(n, seed, "output_tokens"))
        return Requests(prompts, outputs, tenant=tenant)

    def lengths(
        self, table: Table, tenant: Labels, levels: NDArray[np.float64]
    ) -> NDArray[np.int32]:
        """Return the tokens at each request's level of its tenant's distribution."""
        tokens = np.zeros(len(levels), np.int32)
        for code in np.unique(tenant.codes):
            rows = tenant.codes == code
            tokens[rows] = np.rint(np.interp(levels[rows], self.levels, table[code]))
        return tokens
