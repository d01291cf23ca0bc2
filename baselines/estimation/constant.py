"""The constant estimator: every request is predicted the workload's mean output.

Source: what a router without a length model can know. The default estimator.
"""

from servegym.simulator.policy import Param, estimator


def mean_output_tokens(trace):
    """Return the trace's mean output tokens (1 for an empty trace)."""
    return float(trace.output_tokens.mean()) if len(trace) else 1.0


@estimator(
    source="the workload's mean",
    params=(Param("tokens", mean_output_tokens, "tokens", 1, 2**30),),
)
def constant(request, params, memory, rng):
    """Predict the same output tokens for every request."""
    return params[0]
