"""Tokens to KV blocks: the shifts of power-of-two sizes and the divisions of others are floor division."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.simulator.block_arithmetic import blocks_for, in_block, whole_blocks
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace

SIZES = (1, 2, 3, 7, 16, 24, 48, 64, 1000, 65536)


def shared_of(block_size: int):
    """Return the shared record of a cluster with that block size."""
    config = ClusterConfig(instances=1, kv_blocks=1000, block_size=block_size)
    dispatch = find_policy("dispatch", "round-robin")
    return Simulation(Trace([0.0], [1], [1]), config, dispatch).state.shared[0]


@pytest.mark.parametrize("size", SIZES)
def test_only_powers_of_two_are_shifted(size):
    shift = shared_of(size)["block_shift"]
    assert 2**shift == size if size & (size - 1) == 0 else shift == -1


@pytest.mark.parametrize("size", SIZES)
@given(tokens=st.one_of(st.integers(-100, 100), st.integers(-(2**40), 2**40)))
def test_floor_division_for_every_size_and_negative_tokens(size, tokens):
    shared = shared_of(size)
    assert whole_blocks(shared, tokens) == tokens // size
    assert in_block(shared, tokens) == tokens % size
    assert 0 <= in_block(shared, tokens) < size


@pytest.mark.parametrize("size", SIZES)
def test_blocks_for_rounds_up_at_the_boundaries(size):
    shared = shared_of(size)
    assert blocks_for(shared, 0) == 0
    assert [blocks_for(shared, n) for n in (1, size, size + 1, 2 * size)] == [1, 1, 2, 2]
