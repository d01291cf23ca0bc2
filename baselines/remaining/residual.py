"""Residual remaining length: what requests of the same class had left, on average, once they had streamed as much.

E[output - generated | class, output > generated], learned online from completions; class = prompt bin x prediction bin.
Inside a class lengths are taken relative to the prediction, so that true predictions stay true. Until a class has
completions, the wider one speaks for it, and at first the plug-in rule.
Source: ours: calibrates predictions, and replaces the +10 tokens of one that was outlived.
"""

from servegym.baselines.length_table import (
    ALL,
    TABLE_SIZE,
    add_output,
    filled_up,
    prediction_row,
    prompt_row,
)
from servegym.simulator.policy import Param, remaining_policy
from servegym.simulator.views import predicted_tokens, prompt_tokens

PREDICTION = 1024.0  # units of the table that a prediction is long


def observe(request, output_tokens, params, memory):
    """Count a completion in its three classes."""
    prompt, predicted = prompt_tokens(request), predicted_tokens(request)
    length = output_tokens * PREDICTION / predicted
    add_output(memory, ALL, length)
    add_output(memory, prompt_row(prompt), length)
    add_output(memory, prediction_row(prompt, predicted), length)


@remaining_policy(
    source="ours: mean tokens left in the class",
    params=(
        Param("weight", 5, "completions that a class's prior counts as", 0.01, 1e6),
        Param("outlived_tokens", 10, "tokens", 1, 2**20),
    ),
    memory=TABLE_SIZE,
    observe=observe,
)
def residual(request, generated, params, memory):
    """Return the mean tokens left of longer outputs of the request's class."""
    prompt, predicted, weight = prompt_tokens(request), predicted_tokens(request), params[0]
    unit = PREDICTION / predicted
    after, past = (generated + 0.5) * unit, generated * unit
    left = float(predicted - generated)
    if left <= 0.0:
        left = params[1]
    left = filled_up(memory, ALL, after, past, weight, left * unit)
    left = filled_up(memory, prompt_row(prompt), after, past, weight, left)
    return filled_up(memory, prediction_row(prompt, predicted), after, past, weight, left) / unit
