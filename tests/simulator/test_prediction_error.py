"""Prediction error: by hand, by category, over time, and where nothing is known."""

import math

import pytest
from flat_profile import one_server

from servegym.baselines.simulate import simulate
from servegym.simulator.result import Result
from servegym.traces import Labels, Trace

UNDEFINED = {"n": 0, "bias_tokens": None, "mae_tokens": None, "rmse_tokens": None, "mape": None}


def play(outputs: list[int], horizon_s: float | None = None, **options) -> Result:
    """Serve requests a second apart on one server, 10 ms a token; categories b, a, a, ..."""
    n = len(outputs)
    labels = Labels(("a", "b"), [1, *[0] * (n - 1)]) if n else None
    trace = Trace([float(r) for r in range(n)], [10] * n, outputs, category=labels)
    return simulate(trace, one_server(**options), "round-robin", horizon_s=horizon_s)


def test_errors_of_three_requests_by_hand():
    # 10 predicted, 5, 20 and 10 true: errors 5, -10, 0
    error = play([5, 20, 10], estimator_params={"tokens": 10}).prediction_error()
    assert error["n"] == 3 and error["population"] == "finished requests"
    assert error["bias_tokens"] == pytest.approx(-5 / 3)
    assert error["mae_tokens"] == pytest.approx(5.0)
    assert error["rmse_tokens"] == pytest.approx(math.sqrt(125 / 3))
    assert error["mape"] == pytest.approx((5 / 5 + 10 / 20 + 0) / 3)


def test_errors_are_told_by_category_and_by_tenth_of_the_run():
    error = play([5, 20, 10], estimator_params={"tokens": 10}).prediction_error()
    assert error["categories"]["b"]["mae_tokens"] == 5.0 and error["categories"]["b"]["n"] == 1
    assert error["categories"]["a"]["mae_tokens"] == 5.0 and error["categories"]["a"]["n"] == 2
    # of three requests 0 is in the first tenth, 1 in the fourth (10 / 3), 2 in the seventh (20 / 3)
    maes = {k: row["mae_tokens"] for k, row in enumerate(error["tenths"]) if row["n"]}
    assert maes == {0: 5.0, 3: 10.0, 6: 0.0}
    assert len(error["tenths"]) == 10 and error["tenths"][9] == UNDEFINED


def test_errors_are_of_finished_requests_only():
    # the second would need 200 ms from 1 s on
    error = play([5, 20, 10], horizon_s=1.1, estimator_params={"tokens": 10}).prediction_error()
    assert (error["n"], error["mae_tokens"]) == (1, 5.0)


def test_errors_of_nothing_are_undefined():
    error = play([]).prediction_error()
    assert error == {
        "population": "finished requests",
        **UNDEFINED,
        "categories": {},
        "tenths": [UNDEFINED] * 10,
    }


def test_summary_tells_errors_of_estimators_that_tell_requests_apart():
    assert play([5, 20, 10]).summary()["prediction"] is None
    result = play([5, 20, 10], estimator="category")
    # a: 15 predicted for 20 and 10; b: 5 for 5
    assert result.summary()["prediction"] == result.prediction_error()
    assert result.summary()["prediction"]["mae_tokens"] == pytest.approx(10 / 3)
    assert play([5, 20, 10], estimator="oracle").summary()["prediction"]["mae_tokens"] == 0.0
