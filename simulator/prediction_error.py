"""Prediction error: how far the predicted output lengths of finished requests were from the truth.

error = predicted - actual, in tokens, as stored at arrival (rounded and clipped). bias = mean error, MAE = mean
|error|, RMSE = root of the mean squared error, MAPE = mean |error| / actual, a share. Over all, by category, and
over time: by tenths of the offered requests in order of arrival.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from servegym.simulator.kernel import kernel
from servegym.simulator.state import FINISHED

if TYPE_CHECKING:
    from servegym.simulator.result import Result

N_TENTHS = 10
COUNT, ERROR, ABSOLUTE, SQUARE, SHARE = range(5)  # columns of the sums
POPULATION = "finished requests"


def prediction_error(result: "Result") -> dict[str, Any]:
    """Return n, bias_tokens, mae_tokens, rmse_tokens and mape: overall, `categories` by name, and a list of `tenths`.

    None where nothing finished.
    """
    labels = result.trace.category
    names = labels.names if labels is not None else ()
    sums = np.zeros((max(1, len(names)), N_TENTHS, SHARE + 1))
    sum_errors(result.records, sums)
    by_category, by_tenth = sums.sum(axis=1), sums.sum(axis=0)
    return {
        "population": POPULATION,
        **errors_of(by_tenth.sum(axis=0)),
        "categories": {name: errors_of(by_category[c]) for c, name in enumerate(names)},
        "tenths": [errors_of(row) for row in by_tenth],
    }


@kernel
def sum_errors(requests, sums):
    """Add every finished request's errors to sums[category, tenth] (float64[:, 10, 5], mutated)."""
    n = requests.shape[0]
    for r in range(n):
        request = requests[r]
        if request.status != FINISHED:
            continue
        error = float(request.predicted_tokens - request.output_tokens)
        row = sums[request.category, N_TENTHS * r // n]
        row[COUNT] += 1.0
        row[ERROR] += error
        row[ABSOLUTE] += abs(error)
        row[SQUARE] += error * error
        row[SHARE] += abs(error) / request.output_tokens


def errors_of(sums: np.ndarray) -> dict[str, float | int | None]:
    """Return the measures of one row of sums."""
    n = int(sums[COUNT])
    mean = sums / n if n else None
    return {
        "n": n,
        "bias_tokens": None if mean is None else float(mean[ERROR]),
        "mae_tokens": None if mean is None else float(mean[ABSOLUTE]),
        "rmse_tokens": None if mean is None else float(np.sqrt(mean[SQUARE])),
        "mape": None if mean is None else float(mean[SHARE]),
    }
