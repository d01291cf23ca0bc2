"""splitwise-sim traces: CSV with arrival_timestamp (s), prompt_size, token_size and more.

Rows of a request_type other than 2 (LLM inference) are dropped; application_id is kept as tenant.
A batch_size above 1 (several sequences in one request) has no counterpart and is refused.
Source: github.com/Mutinifni/splitwise-sim (Patel et al., ISCA 2024).
"""

import numpy as np
from numpy.typing import NDArray

from servegym.traces.formats.format import Format
from servegym.traces.table import Columns
from servegym.traces.validation import Where, require, to_numbers

LLM_INFERENCE = 2


def no_llm_inference(columns: Columns, where: Where) -> dict[str, NDArray[np.bool_]]:
    """Mark rows of other request types; ValueError for an LLM request of several sequences."""
    found = {name: to_numbers(name, values, where) for name, values in columns.items()}
    is_other = found.get("request_type", np.full(len(where.rows), LLM_INFERENCE)) != LLM_INFERENCE
    sizes = found.get("batch_size", np.ones(len(where.rows)))
    require(is_other | (sizes == 1), "batch_size", sizes, "must be 1", where)
    return {"that are no LLM inference (request_type other than 2)": is_other}


FORMAT = Format(
    name="splitwise-sim trace",
    arrival="arrival_timestamp",
    prompt="prompt_size",
    output="token_size",
    labels={"tenant": "application_id"},
    screen=("request_type", "batch_size"),
    drops=no_llm_inference,
)
