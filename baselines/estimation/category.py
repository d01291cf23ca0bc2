"""The category estimator: every request is predicted the mean output of its category, known beforehand.

Source: DriftSched's static table, with the trace's own means in place of T_base. Nothing is learnt during a run. A
trace without categories has one mean, as under `constant`; so have categories beyond the tenth.
"""

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.simulator.policy import Param, estimator
from servegym.simulator.views import category

MOST_CATEGORIES = 10


def mean_of_category(code):
    """Return a function of a trace: the mean output tokens of the category with that code, of all if it has none."""

    def mean(trace):
        rows = slice(None) if trace.category is None else trace.category.codes == code
        outputs = trace.output_tokens[rows]
        return float(outputs.mean()) if len(outputs) else mean_output_tokens(trace)

    return mean


@estimator(
    source="a table of means by category (DriftSched's static T_base)",
    name="category",
    params=(
        *(
            Param(f"mean_{code}", mean_of_category(code), "tokens", 1, 2**30)
            for code in range(MOST_CATEGORIES)
        ),
        Param("other", mean_output_tokens, "tokens", 1, 2**30),
    ),
)
def mean_by_category(request, params, memory, rng):
    """Predict the mean output tokens of the request's category."""
    return params[min(category(request), MOST_CATEGORIES)]
