"""How long outputs get, learned from completions: sums over output lengths, for three nested classes of requests.

Every completion counts in three classes: all requests, those of its prompt bin, those of its prompt and prediction bin.
A class keeps, for each output bin, how many of its outputs lie in that bin or above and their sum, so that the mean of
the outputs longer than some length costs O(1); one completion costs O(bins). Bins: each length below 8, then 8 an octave;
octave; inside the bin of the length asked for, outputs count as evenly spread. Prompts and predictions: octaves.
Few completions are filled up with `weight` imagined ones of what the wider class says, the widest with a prior.
Source: LEARNING 1 (calibrated remaining lengths); shrinkage as in empirical Bayes.
"""

import math

from servegym.simulator.kernel import kernel

PER_OCTAVE = 8
OCTAVES = 17  # from 8 tokens on
N_BINS = PER_OCTAVE * (OCTAVES + 1)
LONGEST = 2 ** (OCTAVES + 3)  # tokens; longer outputs count as that
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
def output_bin(tokens):
    """Return the bin of an output length, 0 <= tokens < LONGEST."""
    if tokens < PER_OCTAVE:
        return tokens
    _, exponent = math.frexp(float(tokens))  # tokens in [2**(exponent - 1), 2**exponent)
    step = exponent - 4  # an octave from 2**(exponent - 1) on has 8 bins of 2**step
    return PER_OCTAVE * step + (tokens >> step)


@kernel
def bin_start(k):
    """Return the least length of output bin k."""
    if k < 2 * PER_OCTAVE:
        return k
    step = k // PER_OCTAVE - 1
    return (k - PER_OCTAVE * step) << step


@kernel
def add_output(table, row, output_tokens):
    """Count one output in a row of the table (mutates table, float64)."""
    length = min(output_tokens, LONGEST - 1)
    base = 2 * N_BINS * row
    for k in range(output_bin(length) + 1):
        table[base + 2 * k] += 1.0
        table[base + 2 * k + 1] += length


@kernel
def longer_outputs(table, row, tokens):
    """Return (how many outputs of a row were longer than `tokens`, their sum)."""
    if tokens >= LONGEST - 1:
        return 0.0, 0.0
    k = output_bin(tokens)
    here = 2 * (N_BINS * row + k)
    above = here + 2 if k < N_BINS - 1 else here
    count, total = table[above], table[above + 1]
    if k == N_BINS - 1:
        count = total = 0.0
    in_bin = table[here] - count
    first, end = bin_start(k), bin_start(k + 1)
    n_longer = end - 1 - tokens  # lengths of the bin that are longer
    if in_bin > 0.0 and n_longer > 0:
        share = in_bin * n_longer / (end - first)
        count += share
        total += share * 0.5 * (tokens + 1 + end - 1)
    return count, total


@kernel
def filled_up(table, row, generated, weight, wider):
    """Return the mean tokens left after `generated` of a row's longer outputs, with `weight` outputs of `wider` left."""
    count, total = longer_outputs(table, row, generated)
    return (total - count * generated + weight * wider) / (count + weight)


@kernel
def prompt_row(prompt_tokens):
    """Return the row of a prompt's class."""
    return BY_PROMPT + size_class(prompt_tokens)


@kernel
def prediction_row(prompt_tokens, predicted_tokens):
    """Return the row of the class of a prompt and a prediction."""
    return BY_BOTH + N_CLASSES * size_class(prompt_tokens) + size_class(predicted_tokens)
