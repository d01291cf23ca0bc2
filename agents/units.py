"""Units of the linear score: how much each of its terms differs among the instances of a cluster.

Terms differ by factors of 50. A search, or Adam, that moves all weights by as much moves nothing but what differs most;
a weight times its unit is a coordinate in which all matter alike. Seen near the knee (the scenario tight, two
workloads, 4 and 16 instances), rounded.
"""

import numpy as np

from servegym.baselines.features import INSTANCE_FEATURES

NAMES = [feature.name for feature in INSTANCE_FEATURES]
UNIT = {  # of each feature of an instance; 0: a search leaves its weights 0
    "running": 0.07,
    "waiting": 0.045,
    "prefilling": 0.17,
    "prefill_tokens": 0.47,
    "kv_used": 0.02,
    "kv_waiting": 0.007,
    "tokens_left": 0.36,
    "kv_at_ends": 0.04,
    "kv_short": 0.005,
    "free_in": 0.005,
    "next_end_in": 0.035,
    "iteration": 0.009,
    "context": 0.05,
    "waiting_prefill": 0.02,
    "waiting_output": 0.06,
    "kv_with_request": 0.02,
    "running_work": 0.33,
    "waiting_work": 0.055,
    "accepts": 0.0,
}
UNIT_OF_OUTPUT, UNIT_OF_NEED = 0.85, 0.2  # of the request's factors, predicted_output and kv_need
LEAST_UNIT = 0.005  # of a term: below it a unit would be a huge weight


def units() -> np.ndarray:
    """Return the unit of every term of the linear score, float64[3F]; 0 for those that stay 0."""
    of_feature = np.array([UNIT[name] for name in NAMES])
    terms = np.concatenate([of_feature, UNIT_OF_OUTPUT * of_feature, UNIT_OF_NEED * of_feature])
    return np.where(terms > 0, np.maximum(terms, LEAST_UNIT), 0.0)
