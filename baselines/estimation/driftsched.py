"""DriftSched's estimator: a table by kind of task, corrected by a bias learnt from completions.

    T_est = int(T_base[category] * B[category] * S[tenant] * F_input),  F_input = min(1.5, 1 + n_in / 1000)
    at a completion:  B <- (1 - alpha) B + alpha * clip(actual / T_base, .25, 3),  B = 1 at first

adaptive = 0 leaves B = 1: the static arm. Categories and tenants are found by their names (short_qa, summary,
technical, report; premium, standard, batch). Ours, so that any trace has an estimate: what has another name, or
none, has the workload's mean as its base, one bias for all, and S = 1; and T_est is at least 1.
"""

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, estimator
from servegym.simulator.views import category, prompt_tokens, tenant

BASE_TOKENS = {"short_qa": 64, "summary": 256, "technical": 384, "report": 512}
TENANT_FACTORS = {"premium": 1.2, "standard": 1.0, "batch": 0.8}
N_CATEGORIES, N_TENANTS = len(BASE_TOKENS), len(TENANT_FACTORS)
MOST_INPUT_FACTOR, INPUT_SCALE_TOKENS = 1.5, 1000.0
ABSENT = -1

# Where each stands in params.
ALPHA, ADAPTIVE, LEAST_RATIO, MOST_RATIO = range(4)
BASE = 4
FACTOR = BASE + N_CATEGORIES + 1  # behind the base of all other categories
CATEGORY_CODE = FACTOR + N_TENANTS
TENANT_CODE = CATEGORY_CODE + N_CATEGORIES


def code_of(labels, name):
    """Return a function of a trace: the code that a name has among its categories or tenants, ABSENT if none."""

    def code(trace):
        known = getattr(trace, labels)
        return float(known.names.index(name)) if known and name in known.names else ABSENT

    return code


def code_params(labels, names):
    """Return a parameter for the code of each name, found in the trace by default."""
    return tuple(
        Param(f"code_{name}", code_of(labels, name), "code", ABSENT, 2**31, is_whole=True)
        for name in names
    )


PARAMS = (
    Param("alpha", 0.1, "weight of a completion", 0, 1),
    Param("adaptive", 1, "(1 learns, 0 is static)", 0, 1, is_whole=True),
    Param("least_ratio", 0.25, "actual / base", 0, 1),
    Param("most_ratio", 3.0, "actual / base", 1, 100),
    *(Param(f"base_{name}", base, "tokens", 1, 2**30) for name, base in BASE_TOKENS.items()),
    Param("base_other", mean_output_tokens, "tokens", 1, 2**30),
    *(Param(f"factor_{name}", factor, "", 0.01, 100) for name, factor in TENANT_FACTORS.items()),
    *code_params("category", BASE_TOKENS),
    *code_params("tenant", TENANT_FACTORS),
)


@kernel
def kind_of(request, params):
    """Return which row of the table the request has: 0 .. N_CATEGORIES - 1, or N_CATEGORIES for any other."""
    for kind in range(N_CATEGORIES):
        if params[CATEGORY_CODE + kind] == category(request):
            return kind
    return N_CATEGORIES


@kernel
def tenant_factor(request, params):
    """Return S of the request's tenant, 1 for one that is not in the table."""
    for number in range(N_TENANTS):
        if params[TENANT_CODE + number] == tenant(request):
            return params[FACTOR + number]
    return 1.0


def correct(request, output_tokens, params, memory):
    """Move the category's bias towards the ratio of actual to base (mutates memory, B - 1 of each category)."""
    if params[ADAPTIVE] == 0.0:
        return
    kind = kind_of(request, params)
    ratio = output_tokens / params[BASE + kind]
    ratio = min(max(ratio, params[LEAST_RATIO]), params[MOST_RATIO])
    bias = (1.0 - params[ALPHA]) * (1.0 + memory[kind]) + params[ALPHA] * ratio
    memory[kind] = bias - 1.0


@estimator(
    source="DriftSched: T_base * B[category] * S[tenant] * F_input, B an EMA of actual / T_base",
    params=PARAMS,
    memory=N_CATEGORIES + 1,
    observe=correct,
)
def driftsched(request, params, memory, rng):
    """Predict a base by category, times a learnt bias, a factor by tenant and one by prompt length."""
    kind = kind_of(request, params)
    input_factor = min(MOST_INPUT_FACTOR, 1.0 + prompt_tokens(request) / INPUT_SCALE_TOKENS)
    tokens = (
        params[BASE + kind] * (1.0 + memory[kind]) * tenant_factor(request, params) * input_factor
    )
    return max(1.0, float(int(tokens)))
