"""What to doubt about a trace: signs of a wrong unit, and what its recording or the engine leaves out.

`implausible` is asked once, when a file is loaded; `caveats` hold for every run on the trace.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from servegym.traces.trace import Trace

MOST_PER_S = 10_000.0
FEWEST_PER_S = 1.0 / 3600.0
FEWEST_PROMPT_TOKENS = 4.0
MOST_TOKENS = 1_000_000.0


def implausible(trace: "Trace") -> tuple[str, ...]:
    """Return one sentence for each figure that suggests times or lengths in another unit."""
    if not len(trace):
        return ()
    found = [
        rate_doubt(len(trace), trace.mean_rate_per_s),
        *(
            length_doubt(name, float(np.mean(tokens)), least)
            for name, tokens, least in (
                ("prompt", trace.prompt_tokens, FEWEST_PROMPT_TOKENS),
                ("output", trace.output_tokens, 0.0),
            )
        ),
    ]
    return tuple(doubt for doubt in found if doubt)


def rate_doubt(n: int, rate: float | None) -> str | None:
    """Say when a mean rate (requests/s) is one that nobody serves."""
    if n < 2:
        return None
    if rate is None:
        return f"all {n:,} requests arrive at the same instant: is this the arrival column?"
    if rate > MOST_PER_S:
        return (
            f"mean rate {rate:,.4g} req/s is above {MOST_PER_S:,.0f}: are times in a coarser unit?"
        )
    if rate < FEWEST_PER_S:
        return f"mean rate {rate:,.4g} req/s is below one an hour: are times in ms or us, not s?"
    return None


def length_doubt(name: str, mean: float, least: float) -> str | None:
    """Say when a mean length is no number of tokens."""
    if mean < least:
        return f"mean {name} {mean:.4g} tokens is below {least:g}: are lengths in another unit?"
    if mean > MOST_TOKENS:
        return f"mean {name} {mean:,.4g} tokens is above {MOST_TOKENS:,.0f}: are they bytes?"
    return None


def caveats(trace: "Trace") -> tuple[str, ...]:
    """Return one sentence for each thing that results on this trace do not show."""
    found = []
    if trace.prefix_blocks is not None and len(trace.prefix_blocks.ids):
        found.append(
            "the trace has prefix block ids, but the engine has no prefix cache: every prompt is "
            "computed in full"
        )
    if trace.resolution_s is not None:
        found.append(
            f"arrivals are known only to {trace.resolution_s:.4g} s: shorter bursts are an artefact; "
            "spread_batches (--spread-s) spreads equal times"
        )
    return tuple(found)
