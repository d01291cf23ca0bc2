"""Linear dispatch: the least score among the instances that accept, the first of equals.

    score_i = sum_j x_ij * (w[j] + w[F + j] * output + w[2F + j] * need)

x_i: the row of instance i, F features; output and need: of the request, predicted_output and kv_need (features.py).
params: w, 3F numbers. Source: this project (docs/training.md).
"""

import numpy as np

from servegym.baselines.features import N_INSTANCE, N_REQUEST, fill_instance, fill_request
from servegym.baselines.learned.layouts import N_PRODUCTS
from servegym.simulator.kernel import kernel
from servegym.simulator.views import HOLD, n_instances

PREDICTED_OUTPUT, KV_NEED = 2, 3  # in the row of a request
ACCEPTS = N_INSTANCE - 1  # in the row of an instance
# Floats: what features weigh, and two rows of float32.
MEMORY = N_INSTANCE + (N_INSTANCE + N_REQUEST + 1) // 2


def pack(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """Return the 3F weights as the function reads them, float64."""
    return tensors["weight"].astype(np.float64)


def size(weights: np.ndarray) -> int:
    """Return how many there are to be."""
    return N_PRODUCTS


def memory_size(weights: np.ndarray, config: object) -> int:
    """Return the floats of memory that a decision needs."""
    return MEMORY


@kernel
def weigh(weights, request_row, out):
    """Write what each feature of an instance weighs for this request into out, [F]."""
    output, need = request_row[PREDICTED_OUTPUT], request_row[KV_NEED]
    for j in range(N_INSTANCE):
        out[j] = weights[j] + weights[j + N_INSTANCE] * output + weights[j + 2 * N_INSTANCE] * need


@kernel
def linear_score(row, weights):
    """Return the score of a row; the least is best."""
    score = row[0] * weights[0]
    for j in range(1, N_INSTANCE):
        score += row[j] * weights[j]
    return score


def learned_linear(cluster, request, params, memory, rng):
    """Return the accepting instance with the least linear score of its features, weighted by the request."""
    each, rows = memory[:N_INSTANCE], memory[N_INSTANCE:].view(np.float32)
    row, request_row = rows[:N_INSTANCE], rows[N_INSTANCE:]
    fill_request(cluster, request, request_row)
    weigh(params, request_row, each)
    chosen, least = HOLD, 0.0
    for i in range(n_instances(cluster)):
        fill_instance(cluster, request, i, row)
        if row[ACCEPTS] == 0:
            continue
        score = linear_score(row, each)
        if chosen == HOLD or score < least:
            chosen, least = i, score
    return chosen
