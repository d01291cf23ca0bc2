"""What a request is predicted to need yet: output tokens, and KV-token work.

Tokens left, the plug-in rule of Block and Astrolabe: predicted less streamed, a fixed few once a request has outlived
its prediction. KV-token work: the sum over the tokens left of what is known before each, so left*known +
left*(left - 1)/2. Source: docs/engine.md section 9.
"""

from servegym.simulator.kernel import kernel

OUTLIVED_TOKENS = 10
MOST_PREDICTED = 2**20  # tokens; more counts as that many, so that sums of work fit int64


@kernel
def unstreamed(request, generated):
    """Return the predicted tokens less those streamed, which may be negative (int64)."""
    return min(int(request.predicted_tokens), MOST_PREDICTED) - int(generated)


@kernel
def predicted_left(request, generated):
    """Return the output tokens that a request which has streamed `generated` has left (int64, >= 1)."""
    left = unstreamed(request, generated)
    return left if left > 0 else OUTLIVED_TOKENS


@kernel
def kv_work(known, left):
    """Return the KV-token work of a request that knows so many tokens and has so many left (int64)."""
    return left * known + (left * (left - 1) >> 1)
