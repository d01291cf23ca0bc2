"""The set network: every instance judged by the same small network, which also sees the mean over all instances.

    h_i = relu(encoder @ [x_i; r; c] + bias)      pooled = mean over all instances of h_i
    g_i = relu(head @ [h_i; pooled] + bias)       logit_i = out @ g_i + bias - linear score of x_i (linear.py)

x_i, r and c: rows of instance, request and cluster (features.py). The largest logit among the instances that accept,
the first of equals. Any number of instances; their order does not matter. Source: Deep Sets (Zaheer et al., 2017).
Numbers are float32, two in a place of params and of memory. Matrices lie transposed, so that the innermost loops run
over outputs and are vectorised without adding in another order; what is the same for all instances is added up once.
"""

from typing import NamedTuple

import numpy as np

from servegym.baselines.features import (
    N_CLUSTER,
    N_INSTANCE,
    N_REQUEST,
    fill_cluster,
    fill_instance,
    fill_request,
)
from servegym.baselines.learned.dense import CACHED_BY, LANES, dense
from servegym.baselines.learned.layouts import N_PRODUCTS
from servegym.baselines.learned.linear import ACCEPTS, linear_score, weigh
from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import kernel
from servegym.simulator.views import HOLD, n_instances

N_CONTEXT = N_REQUEST + N_CLUSTER  # r and c, beside each other
ZERO, NO_LIMIT = np.float32(0.0), np.float32(-np.inf)
MARK = 1  # the hidden width H stands before the weights


def pack(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """Return the weights as Weights has them, behind H: the hidden width, filled up with zeros to whole LANES."""
    encoder, head = tensors["encoder.weight"].T, tensors["head.weight"].T
    given = encoder.shape[1]
    hidden = -(-given // LANES) * LANES
    matrices = [
        (N_INSTANCE, encoder[:N_INSTANCE]),
        (N_CONTEXT, encoder[N_INSTANCE:]),
        (1, tensors["encoder.bias"]),
        (hidden, head[:given]),
        (hidden, head[given:]),
        (1, tensors["head.bias"]),
        (1, tensors["out.weight"]),
    ]
    flat = [np.array([hidden]), *(filled(part, rows, hidden) for rows, part in matrices)]
    flat += [tensors["out.bias"], tensors["skip.weight"]]
    numbers = np.concatenate([np.asarray(part, np.float32).ravel() for part in flat])
    return np.append(numbers, np.zeros(len(numbers) % 2, np.float32)).view(np.float64)


def filled(part: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return a matrix, or a vector as one row, with zeros up to so many rows and columns."""
    matrix = np.zeros((rows, columns), np.float32)
    part = np.atleast_2d(part)
    matrix[: part.shape[0], : part.shape[1]] = part
    return matrix


def hidden_of(weights: np.ndarray) -> int:
    """Return the hidden width of packed weights."""
    return int(weights[:1].view(np.float32)[0])


def size(weights: np.ndarray) -> int:
    """Return how many packed weights of that hidden width there are."""
    hidden = hidden_of(weights)
    numbers = MARK + (N_INSTANCE + N_CONTEXT + 2 * hidden + 3) * hidden + 1 + N_PRODUCTS
    return (numbers + 1) // 2


def scratch_size(hidden: int, instances: int) -> int:
    """Return the float32 numbers of scratch for so many instances: the sizes in scratch_of, added up."""
    return 2 * N_INSTANCE + N_CONTEXT + 3 * hidden + (hidden + 2) * instances


def memory_size(weights: np.ndarray, config: ClusterConfig) -> int:
    """Return the floats of memory that a decision needs."""
    return (scratch_size(hidden_of(weights), config.most_instances) + 1) // 2


class Weights(NamedTuple):
    """Packed weights, float32; matrices are flat."""

    encoder: np.ndarray  # N_INSTANCE x H
    encoder_context: np.ndarray  # N_CONTEXT x H
    encoder_bias: np.ndarray  # H
    head: np.ndarray  # H x H, of h_i
    head_pooled: np.ndarray  # H x H
    head_bias: np.ndarray  # H
    out: np.ndarray  # H
    out_bias: np.ndarray  # 1
    skip: np.ndarray  # 3 N_INSTANCE


class Scratch(NamedTuple):
    """Where one decision is worked out, float32."""

    row: np.ndarray  # N_INSTANCE: of the instance that is read
    context: np.ndarray  # N_CONTEXT: of the request, then of the cluster
    skip: np.ndarray  # N_INSTANCE: what features weigh in the linear score
    base: np.ndarray  # H: what the sums of all instances begin with
    pooled: np.ndarray  # H
    g: np.ndarray  # H: of the instance that is judged
    scores: np.ndarray  # instances: the linear score
    accepts: np.ndarray  # instances
    h: np.ndarray  # instances x H, flat


for _names in (Weights, Scratch):
    setattr(_names, CACHED_BY, _names._fields)


@kernel
def weights_of(packed):
    """Return the weights that pack wrote, float32[...], by name."""
    hidden = int(packed[0])
    a = MARK + N_INSTANCE * hidden
    b = a + N_CONTEXT * hidden
    c = b + hidden
    d = c + hidden * hidden
    e = d + hidden * hidden
    f = e + hidden
    g = f + hidden
    return Weights(
        packed[MARK:a],
        packed[a:b],
        packed[b:c],
        packed[c:d],
        packed[d:e],
        packed[e:f],
        packed[f:g],
        packed[g : g + 1],
        packed[g + 1 : g + 1 + N_PRODUCTS],
    )


@kernel
def scratch_of(memory, hidden, instances):
    """Return the places in memory, float32[scratch_size], by name."""
    a = N_INSTANCE + N_CONTEXT
    b = a + N_INSTANCE
    c = b + 3 * hidden
    d = c + 2 * instances
    return Scratch(
        memory[:N_INSTANCE],
        memory[N_INSTANCE:a],
        memory[a:b],
        memory[b : b + hidden],
        memory[b + hidden : b + 2 * hidden],
        memory[b + 2 * hidden : c],
        memory[c : c + instances],
        memory[c + instances : d],
        memory[d : d + instances * hidden],
    )


@kernel
def copy_into(row, source):
    """Write source over row, of the same length (an assignment of a slice may allocate)."""
    for k in range(row.shape[0]):
        row[k] = source[k]


@kernel
def begin_decision(weights, scratch):
    """Work out what is the same for all instances, from scratch.context."""
    weigh(weights.skip, scratch.context, scratch.skip)
    bias = weights.encoder_bias
    dense(scratch.context, weights.encoder_context, bias, NO_LIMIT, scratch.base)
    scratch.pooled[:] = 0


@kernel
def encode(weights, scratch, row, i):
    """Take the row of instance i in: h_i, its part of the mean, and its linear score."""
    hidden = scratch.base.shape[0]
    h = scratch.h[i * hidden : (i + 1) * hidden]
    dense(row, weights.encoder, scratch.base, ZERO, h)
    for k in range(hidden):
        scratch.pooled[k] += h[k]
    scratch.scores[i] = linear_score(row, scratch.skip)
    scratch.accepts[i] = row[ACCEPTS]


@kernel
def pool(weights, scratch):
    """Work out what the mean over all instances adds to each head, once all are taken in."""
    share = np.float32(1.0 / scratch.scores.shape[0])
    for k in range(scratch.pooled.shape[0]):
        scratch.pooled[k] *= share
    dense(scratch.pooled, weights.head_pooled, weights.head_bias, NO_LIMIT, scratch.base)


@kernel
def logit(weights, scratch, i):
    """Return the logit of instance i, once the mean is known."""
    hidden, g = scratch.base.shape[0], scratch.g
    h = scratch.h[i * hidden : (i + 1) * hidden]
    dense(h, weights.head, scratch.base, ZERO, g)
    out, a, b, c, d = weights.out, ZERO, ZERO, ZERO, ZERO
    for k in range(0, hidden, 4):  # four sums, none of which waits for another
        a += out[k] * g[k]
        b += out[k + 1] * g[k + 1]
        c += out[k + 2] * g[k + 2]
        d += out[k + 3] * g[k + 3]
    return weights.out_bias[0] - scratch.scores[i] + ((a + b) + (c + d))


def learned_set_mlp(cluster, request, params, memory, rng):
    """Return the accepting instance with the largest logit of a network that is the same for all instances."""
    packed, n = params.view(np.float32), n_instances(cluster)
    weights, scratch = weights_of(packed), scratch_of(memory.view(np.float32), int(packed[0]), n)
    fill_request(cluster, request, scratch.context[:N_REQUEST])
    fill_cluster(cluster, scratch.context[N_REQUEST:])
    begin_decision(weights, scratch)
    for i in range(n):
        fill_instance(cluster, request, i, scratch.row)
        encode(weights, scratch, scratch.row, i)
    pool(weights, scratch)
    chosen, largest = HOLD, np.float32(0.0)
    for i in range(n):
        if scratch.accepts[i] == 0:
            continue
        value = logit(weights, scratch, i)
        if chosen == HOLD or value > largest:
            chosen, largest = i, value
    return chosen


@kernel
def set_logits(x, r, c, packed, memory, out):
    """Write the logits of given rows into out, float32[n]: x [n, N_INSTANCE], r [N_REQUEST], c [N_CLUSTER], float32.

    packed: float64, of pack; memory: float64, half of scratch_size. For comparison with a network elsewhere.
    """
    numbers = packed.view(np.float32)
    n, hidden = x.shape[0], int(numbers[0])
    weights, scratch = weights_of(numbers), scratch_of(memory.view(np.float32), hidden, n)
    copy_into(scratch.context[:N_REQUEST], r)
    copy_into(scratch.context[N_REQUEST:], c)
    begin_decision(weights, scratch)
    for i in range(n):
        encode(weights, scratch, x[i], i)
    pool(weights, scratch)
    for i in range(n):
        out[i] = logit(weights, scratch, i)
