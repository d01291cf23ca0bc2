"""What each seed plays: a block of a trace file, or its own draw from a fitted workload.

Seed s of a file plays one of `seeds` contiguous, disjoint blocks, in an order drawn from the first
seed. Overlapping windows would share requests and give intervals that are too narrow. Every system
plays the same traces (common random numbers).
"""

from servegym.traces import Trace, Workload, generate
from servegym.traces.streams import stream

LEAST_REQUESTS = 1_000  # a block; below it the start and the drain of a run weigh too much


def blocks_of_file(trace: Trace, seeds: int, seed: int = 0) -> dict[int, Trace]:
    """Return the block that each of the seeds seed, seed + 1, ... plays, by seed.

    ValueError naming --whole and --seeds when a block would have fewer than 1,000 requests.
    """
    check_seeds(seeds, seed)
    n_block = len(trace) // seeds
    if n_block < LEAST_REQUESTS:
        most = max(1, len(trace) // LEAST_REQUESTS)
        raise ValueError(
            f"{trace.name or 'the trace'} has {len(trace):,} requests, {n_block:,} for each of {seeds} "
            f"seeds; a block needs {LEAST_REQUESTS:,}: use --seeds {most} or fewer, or --whole to play "
            "the file once, without intervals"
        )
    order = stream(seed, "blocks").permutation(seeds)
    return {seed + s: trace.block(int(order[s]), seeds) for s in range(seeds)}


def draws_of_workload(
    model: Workload, n_requests: int, seeds: int, seed: int = 0, arrivals: str = "poisson"
) -> dict[int, Trace]:
    """Return n_requests drawn independently for each of the seeds seed, seed + 1, ..., by seed.

    Arrivals of that process at the recorded rate, or 1 a second. ValueError below two requests, which
    have no rate.
    """
    check_seeds(seeds, seed)
    if n_requests < 2:
        raise ValueError(f"requests = {n_requests}; must be >= 2")
    rate_per_s = model.recorded_rate_per_s or 1.0
    return {
        s: generate(model, n_requests, rate_per_s, s, arrivals) for s in range(seed, seed + seeds)
    }


def check_seeds(seeds: int, seed: int) -> None:
    """ValueError unless there is at least one seed and none is negative."""
    if seeds < 1:
        raise ValueError(f"seeds = {seeds}; must be >= 1")
    if seed < 0:
        raise ValueError(f"seed = {seed}; must be >= 0")
