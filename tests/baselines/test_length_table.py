"""The table of output lengths: its bins, sums by hand, and what it converges to."""

import numpy as np
import pytest

from servegym.baselines.length_table import (
    ALL,
    BY_BOTH,
    LONGEST,
    N_BINS,
    N_CLASSES,
    N_ROWS,
    TABLE_SIZE,
    add_output,
    bin_start,
    filled_up,
    length_bin,
    longer_outputs,
    prediction_row,
    prompt_row,
    size_class,
)


def test_every_length_lies_in_the_bin_that_begins_at_or_below_it():
    lengths = [*range(5000), *(2**k + d for k in range(12, 20) for d in (-1, 0, 1)), LONGEST - 1]
    for tokens in lengths:
        k = length_bin(tokens)
        assert 0 <= k < N_BINS
        assert bin_start(k) <= tokens < bin_start(k + 1)
    # one a length below 16, then 8 an octave
    assert [bin_start(k) for k in (0, 15, 16, 17, 24, 32)] == [0, 15, 16, 18, 32, 64]
    assert bin_start(N_BINS) == LONGEST


def test_classes_are_octaves_and_every_row_is_somebodys():
    assert [size_class(n) for n in (1, 31, 32, 63, 64, 8191, 8192, 10**9)] == [
        0,
        0,
        1,
        1,
        2,
        8,
        9,
        9,
    ]
    sizes = [1, *(32 * 2**k for k in range(N_CLASSES - 1))]
    rows = [prompt_row(p) for p in sizes] + [prediction_row(p, q) for p in sizes for q in sizes]
    assert sorted(rows) == list(range(1, N_ROWS))
    assert prediction_row(1, 1) == BY_BOTH


def table_of(*outputs: float, row: int = ALL) -> np.ndarray:
    """Return a table with those outputs in one row."""
    table = np.zeros(TABLE_SIZE)
    for tokens in outputs:
        add_output(table, row, tokens)
    return table


def test_sums_of_longer_outputs_by_hand():
    table = table_of(5, 10, 20)
    assert longer_outputs(table, ALL, 0.0) == (3.0, 35.0)
    assert longer_outputs(table, ALL, 4.5) == (3.0, 35.0)
    assert longer_outputs(table, ALL, 6.0) == (2.0, 30.0)
    assert longer_outputs(table, ALL, 16.0) == (1.0, 20.0)
    # a bin from 20 to 22: of an output in it half lies above 21, at 21.5
    assert longer_outputs(table, ALL, 21.0) == (0.5, 10.75)
    assert longer_outputs(table, ALL, 22.0) == (0.0, 0.0)
    assert longer_outputs(table, 1, 0.0) == (0.0, 0.0)


def test_the_longest_lengths_count_as_the_longest_bin_and_read_nothing_behind_it():
    table = table_of(LONGEST - 1, 2**30, row=N_ROWS - 1)
    assert longer_outputs(table, N_ROWS - 1, 100.0) == (2.0, 2.0 * (LONGEST - 1))
    count, _ = longer_outputs(table, N_ROWS - 1, LONGEST - 2.0)
    assert 0.0 < count < 1e-3
    for length in (float(LONGEST), 2.0**30):
        assert longer_outputs(table, N_ROWS - 1, length) == (0.0, 0.0)


def test_imagined_completions_fill_up_by_hand():
    # outputs 5, 10, 20 pass 4 by 1, 6, 16; one more by 9: 32 / 4
    assert filled_up(table_of(5, 10, 20), ALL, 4.5, 4.0, 1.0, 9.0) == 8.0
    # none longer than 30: the prior alone
    assert filled_up(table_of(5, 10, 20), ALL, 30.5, 30.0, 1.0, 9.0) == 9.0


@pytest.mark.parametrize("shape", ["uniform", "long tail"])
def test_mean_left_converges_to_the_true_conditional_mean(shape):
    rng = np.random.default_rng(5)

    def draw(n: int) -> np.ndarray:
        if shape == "uniform":
            return rng.integers(1, 401, n)
        return np.ceil(rng.lognormal(4.5, 1.0, n)).astype(int)

    table = table_of(*(int(tokens) for tokens in draw(30_000)))
    truth = draw(2_000_000)
    for generated in (0, 3, 17, 50, 130, 290):
        longer = truth[truth > generated]
        left = filled_up(table, ALL, generated + 0.5, float(generated), 1.0, 10.0)
        assert left == pytest.approx((longer - generated).mean(), rel=0.05)
