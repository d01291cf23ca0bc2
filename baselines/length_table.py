"""How long outputs get, learned from completions: sums over output lengths, for nested classes of requests.

Every completion counts in three classes: all requests, those of its prompt bin, those of its prompt and prediction bin.
A class keeps, for each length bin, how many of its outputs lie in that bin or above and their sum, so that the mean of
the outputs longer than some length costs O(1); one completion costs O(bins). Lengths are in a unit of the caller's.
Bins: one a unit below 16, then 8 an octave; inside the bin of the length asked for, outputs count as evenly spread.
Prompts and predictions: one bin an octave. A class of few completions is filled up with `weight` imagined ones, whose
length the wider class says; the widest has a prior.
Source: ours (calibrated remaining lengths); shrinkage as in empirical Bayes.
"""

import math

from servegym.simulator.kernel import kernel

PER_OCTAVE = 8
OCTAVES = 17  # from 8 units on
N_BINS = PER_OCTAVE * (OCTAVES + 1)
LONGEST = 2 ** (OCTAVES + 3)  # units; longer outputs count as just below
SHORTEST_CLASS, N_CLASSES = 32, 10  # prompts, or predictions, below 32 tokens; below 64; ...

ALL, BY_PROMPT = 0, 1
BY_BOTH = BY_PROMPT + N_CLASSES
N_ROWS = BY_BOTH + N_CLASSES * N_CLASSES
TABLE_SIZE = 2 * N_BINS * N_ROWS  # floats
PROMPT_TABLE_SIZE = 2 * N_BINS * BY_BOTH  # without predictions


@kernel
def size_class(tokens):
    """Return the octave of a number of tokens, 0 .. N_CLASSES - 1: below 32, below 64, ..."""
    bound, k = SHORTEST_CLASS, 0
    while tokens >= bound and k < N_CLASSES - 1:
        bound *= 2
        k += 1
    return k


@kernel
def length_bin(length):
    """Return the bin of a length, 0 <= length < LONGEST."""
    whole = int(length)
    if whole < PER_OCTAVE:
        return whole
    _, exponent = math.frexp(float(whole))  # whole is in [2**(exponent - 1), 2**exponent)
    step = exponent - 4  # the octave from 2**(exponent - 1) on has 8 bins of 2**step
    return PER_OCTAVE * step + (whole >> step)


@kernel
def bin_start(k):
    """Return the least length of bin k."""
    if k < 2 * PER_OCTAVE:
        return k
    step = k // PER_OCTAVE - 1
    return (k - PER_OCTAVE * step) << step


@kernel
def add_output(table, row, length):
    """Count an output of that length in a row of the table (mutates table, float64)."""
    length = min(float(length), LONGEST - 1.0)
    base = 2 * N_BINS * row
    for k in range(length_bin(length) + 1):
        table[base + 2 * k] += 1.0
        table[base + 2 * k + 1] += length


@kernel
def longer_outputs(table, row, length):
    """Return (how many outputs of a row were longer than that, the sum of their lengths)."""
    if length >= LONGEST:
        return 0.0, 0.0
    k = length_bin(length)
    here, count, total = 2 * (N_BINS * row + k), 0.0, 0.0
    if k < N_BINS - 1:
        count, total = table[here + 2], table[here + 3]
    in_bin = table[here] - count
    if in_bin > 0.0:
        first, end = bin_start(k), bin_start(k + 1)
        longer = in_bin * (end - length) / (end - first)
        count += longer
        total += longer * 0.5 * (length + end)
    return count, total


@kernel
def filled_up(table, row, after, past, weight, wider):
    """Return by how much outputs longer than `after` pass `past`, on average with `weight` ones that do by `wider`."""
    count, total = longer_outputs(table, row, after)
    return (total - count * past + weight * wider) / (count + weight)


@kernel
def prompt_row(prompt_tokens):
    """Return the row of a prompt's class."""
    return BY_PROMPT + size_class(prompt_tokens)


@kernel
def prediction_row(prompt_tokens, predicted_tokens):
    """Return the row of the class of a prompt and a prediction."""
    return BY_BOTH + N_CLASSES * size_class(prompt_tokens) + size_class(predicted_tokens)
