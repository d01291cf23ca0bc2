"""What a study optimises: one number of a run, by name, and which way it improves.

Those that agents train for (agents/objectives.py), and `prediction-mae`, which an estimator alone decides. A tier's SLO
and weight depend on its number, so that objectives of SLOs do not compare runs with another number of tiers.
"""

from typing import Literal, Protocol

import numpy as np

from servegym.agents.objectives import OBJECTIVES as TRAINED
from servegym.simulator.result import Result
from servegym.traces.names import near_match


class Objective(Protocol):
    """A number of a run: `of` gives it, NaN while it is undefined."""

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def better(self) -> Literal["lower", "higher"]: ...
    def of(self, result: Result) -> float: ...


class PredictionMae:
    """The mean absolute error of predicted output lengths."""

    name = "prediction-mae"
    meaning = "mean absolute error of predicted output lengths"
    unit = "tokens"
    better: Literal["lower", "higher"] = "lower"

    def of(self, result: Result) -> float:
        """Return tokens; NaN if nothing finished."""
        error = result.prediction_error()["mae_tokens"]
        return np.nan if error is None else float(error)


OBJECTIVES: dict[str, Objective] = {**TRAINED, PredictionMae.name: PredictionMae()}
OF_TIERS = ("ttft-slo", "goodput")  # say nothing about another number of tiers


def find_objective(name: str) -> Objective:
    """Return the objective of that name; ValueError with the near match."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective {name!r}; {near_match(name, OBJECTIVES)}")
    return OBJECTIVES[name]
