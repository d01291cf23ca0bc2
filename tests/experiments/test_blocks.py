"""What seeds play: disjoint blocks of a file, or independent draws of a fitted workload."""

import numpy as np
import pytest

from servegym.experiments.blocks import blocks_of_file, draws_of_workload
from servegym.traces import Trace, workload


def numbered_trace(n: int) -> Trace:
    """Return n requests, one a second, whose prompt length says which request it is."""
    return Trace(np.arange(n, dtype=float), np.arange(1, n + 1), np.full(n, 2), name="numbered")


def test_blocks_are_contiguous_disjoint_and_cover_the_file():
    blocks = blocks_of_file(numbered_trace(10_005), seeds=10)
    assert sorted(blocks) == list(range(10))
    for block in blocks.values():
        assert (np.diff(block.prompt_tokens) == 1).all()
        assert block.arrival_s[0] == 0.0
    played = np.sort(np.concatenate([block.prompt_tokens for block in blocks.values()]))
    assert (played == np.arange(1, 10_006)).all()


def test_block_order_is_drawn_from_the_seed():
    def first_requests(seed: int) -> list[int]:
        blocks = blocks_of_file(numbered_trace(8_000), 8, seed)
        return [int(blocks[s].prompt_tokens[0]) for s in sorted(blocks)]

    assert first_requests(0) == first_requests(0)
    assert first_requests(0) != first_requests(1)
    assert first_requests(0) != sorted(first_requests(0))


def test_too_short_blocks_are_an_error_that_names_the_ways_out():
    with pytest.raises(ValueError) as error:
        blocks_of_file(numbered_trace(9_999), seeds=10)
    assert "999 for each of 10 seeds" in str(error.value)
    assert "--seeds 9" in str(error.value) and "--whole" in str(error.value)
    assert len(blocks_of_file(numbered_trace(9_999), seeds=9)) == 9


def test_draws_are_independent_of_each_other_and_of_how_many_there_are():
    model = workload("azure-conv")
    three = draws_of_workload(model, 1_000, seeds=3, seed=7)
    two = draws_of_workload(model, 1_000, seeds=2, seed=7)
    assert sorted(three) == [7, 8, 9]
    assert two[8].workload_hash == three[8].workload_hash
    assert len({trace.workload_hash for trace in three.values()}) == 3


@pytest.mark.parametrize(("seeds", "seed", "message"), [(0, 0, "seeds = 0"), (2, -1, "seed = -1")])
def test_bad_seeds_are_refused(seeds: int, seed: int, message: str):
    with pytest.raises(ValueError, match=message):
        blocks_of_file(numbered_trace(5_000), seeds, seed)
    with pytest.raises(ValueError, match=message):
        draws_of_workload(workload("azure-conv"), 1_000, seeds, seed)


def test_a_draw_without_a_rate_is_refused():
    with pytest.raises(ValueError, match="requests = 1; must be >= 2"):
        draws_of_workload(workload("azure-conv"), 1, seeds=2)
