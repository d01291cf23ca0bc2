"""The residual estimator: the mean output of the completions so far whose prompts were about as long.

Learned online; class = prompt bin. A prompt bin without completions is given the mean of all, at first the workload's.
Source: ours, for a router that has no length model. Goes with the remaining-length policy of that name.
"""

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.baselines.length_table import (
    ALL,
    PROMPT_TABLE_SIZE,
    add_output,
    filled_up,
    prompt_row,
)
from servegym.simulator.policy import Param, estimator
from servegym.simulator.views import prompt_tokens


def observe(request, output_tokens, params, memory):
    """Count a completion among all and in its prompt bin."""
    add_output(memory, ALL, output_tokens)
    add_output(memory, prompt_row(prompt_tokens(request)), output_tokens)


@estimator(
    source="ours: mean output in the prompt bin",
    params=(
        Param("tokens", mean_output_tokens, "tokens", 1, 2**30),
        Param("weight", 5, "completions that a bin's prior counts as", 0.01, 1e6),
    ),
    memory=PROMPT_TABLE_SIZE,
    observe=observe,
)
def residual(request, params, memory, rng):
    """Predict the mean output of requests with such a prompt."""
    mean = filled_up(memory, ALL, 0.0, 0.0, params[1], params[0])
    return filled_up(memory, prompt_row(prompt_tokens(request)), 0.0, 0.0, params[1], mean)
