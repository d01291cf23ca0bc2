"""The trials of a study as a table, one row a trial: number, state, mean so far, settings, values by seed, seconds."""

import pandas as pd

from servegym.tuning.outcome import Outcome, value_so_far
from servegym.tuning.tally import REASON


def trials_table(outcome: Outcome) -> pd.DataFrame:
    """Return all trials, those that failed with the reason; `value` is the mean over the seeds played."""
    rows = []
    for trial in outcome.trials:
        seconds = trial.duration.total_seconds() if trial.duration else None
        row = {"number": trial.number, "state": trial.state.name, "value": value_so_far(trial)}
        row |= {each.key: trial.params.get(each.key) for each in outcome.problem.dimensions}
        row |= {f"seed_{s}": trial.intermediate_values.get(s) for s in outcome.problem.tuning_seeds}
        rows.append(row | {"seconds": seconds, "reason": trial.user_attrs.get(REASON)})
    return pd.DataFrame(rows)
