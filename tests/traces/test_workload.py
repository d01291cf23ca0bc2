"""Workloads: every shipped one draws valid traces, and what is independent of what."""

import json
from pathlib import Path

import numpy as np
import pytest

from servegym.traces import Trace, Workload, generate, workload, workload_names
from servegym.traces.arrivals import Clients, Poisson
from servegym.traces.demand.distributions import Fixed
from servegym.traces.demand.requests import Independent
from servegym.traces.demand.tenants import TenantLengths

EXPECTED = {
    *("azure-conv", "azure-code", "burstgpt", "mooncake-conversation", "sharegpt"),
    *("arxiv-summarization", "deepseek-r1", "zipf-64-512", "powerlaw-128-512"),
    *("driftsched-words", "driftsched-tokens", "driftsched-tokens-step"),
}


def lengths(trace: Trace) -> tuple[list[int], list[int]]:
    """Prompt and output lengths as lists."""
    return trace.prompt_tokens.tolist(), trace.output_tokens.tolist()


def test_what_is_promised_ships():
    assert set(workload_names()) >= EXPECTED


@pytest.mark.parametrize("name", workload_names())
def test_shipped_workload_says_where_it_comes_from_and_round_trips(name: str):
    model = workload(name)
    assert model.name == name
    assert all([model.source, model.licence, model.citation, model.made_by])
    assert model.n_rows > 0 or model.made_by.startswith("traces/")
    assert (model.arrivals is None) == (model.recorded_rate_per_s is None)
    assert Workload.from_json(model.to_json()) == model
    assert len(repr(model)) < 120 and name in repr(model)


@pytest.mark.parametrize("name", workload_names())
def test_shipped_workload_draws_a_valid_trace(name: str):
    model = workload(name)
    trace = generate(name, 3_000, 7.0, seed=0)
    assert len(trace) == 3_000 and trace.name == name
    assert trace.mean_rate_per_s == pytest.approx(7.0, rel=5 / np.sqrt(3_000))
    # Poisson has no part in the lengths; the heaviest tails have sd of 3 means: 5 sigma = .27.
    assert trace.prompt_tokens.mean() == pytest.approx(model.mean_prompt_tokens, rel=0.27)
    assert trace.output_tokens.mean() == pytest.approx(model.mean_output_tokens, rel=0.27)
    assert lengths(trace.head(50)) == lengths(generate(name, 50, 7.0, seed=0))


def test_a_workload_is_read_from_the_path_of_its_file_as_it_is_now(tmp_path: Path):
    path = tmp_path / "mine.json"
    for name in ("azure-conv", "sharegpt"):  # the second replaces the first: nothing is cached
        path.write_text(workload(name).to_json())
        assert workload(str(path)) == workload(path) == workload(name)
        assert lengths(generate(str(path), 50, 7.0, 0)) == lengths(generate(name, 50, 7.0, 0))


NO_WORKLOAD = {
    "nope": "Expecting value",
    "[1]": "a workload is an object of named fields, not list",
    '{"coefficients": 1}': "'coefficients' is no field of a workload",
    '{"name": "x"}': "a workload lacks source, licence, citation, n_rows",
    "demand": "demand = 3; must be lengths of requests",
    "arrivals": "arrivals = 3; must be a process or null",
    "recorded_rate_per_s": "recorded_rate_per_s = -1; must be finite and > 0, or null",
    "name": "name = 3; must be a text",
}


@pytest.mark.parametrize("text", NO_WORKLOAD)
def test_a_file_that_holds_no_workload_is_named_with_the_reason(text: str, tmp_path: Path):
    table = json.loads(workload("azure-conv").to_json())
    if text in table:
        text_written = json.dumps(table | {text: -1 if "rate" in text else 3})
    else:
        text_written = text
    path = tmp_path / "mine.json"
    path.write_text(text_written)
    with pytest.raises(ValueError) as error:
        workload(str(path))
    assert str(error.value).startswith(f"{path} is no workload file, as servegym trace fit writes:")
    assert NO_WORKLOAD[text] in str(error.value)


def test_a_missing_workload_file_is_no_unknown_name(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        workload(str(tmp_path / "mine.json"))


WITH_ARRIVALS = [name for name in workload_names() if workload(name).arrivals is not None]


@pytest.mark.parametrize("name", WITH_ARRIVALS)
def test_fitted_arrivals_come_at_the_recorded_rate_and_stretch_to_another(name: str):
    model = workload(name)
    recorded = generate(name, 3_000, None, 1, arrivals="fitted")
    assert model.recorded_rate_per_s is not None
    slow = generate(name, 3_000, model.recorded_rate_per_s / 4, 1, arrivals="fitted")
    np.testing.assert_allclose(slow.arrival_s, 4 * recorded.arrival_s, rtol=1e-12)
    assert lengths(slow) == lengths(recorded)
    # Over seeds, the time 3,000 requests take is right on average; single traces are not.
    spans = [generate(name, 3_000, None, s, arrivals="fitted").arrival_s[-1] for s in range(40)]
    spread = np.std(spans) / np.sqrt(len(spans))
    due = 3_000 / model.recorded_rate_per_s
    bias = 0.1 if name == "deepseek-r1" else 0.0  # a quiet hour takes longer than a busy one
    assert np.mean(spans) == pytest.approx(due, abs=4 * spread + bias * due + 0.01 * due)


def test_fitted_arrivals_need_recorded_times():
    with pytest.raises(
        ValueError, match="arrivals = 'fitted'; sharegpt was recorded without times"
    ):
        generate("sharegpt", 5, 1.0, 0, arrivals="fitted")
    with pytest.raises(ValueError, match="rate_per_s = None, and sharegpt was recorded without"):
        generate("sharegpt", 5, None, 0)


def test_recorded_rates_are_the_measured_ones():
    rates = {name: workload(name).recorded_rate_per_s for name in workload_names()}
    assert rates["azure-conv"] == pytest.approx(5.53, abs=0.001)
    assert rates["azure-code"] == pytest.approx(2.566, abs=0.001)
    assert rates["mooncake-conversation"] == pytest.approx(3.40, abs=0.01)
    assert rates["deepseek-r1"] == pytest.approx(16.0, abs=0.05)
    assert rates["burstgpt"] is rates["sharegpt"] is rates["arxiv-summarization"] is None


def test_deepseek_tenants_follow_their_arrivals():
    model = workload("deepseek-r1")
    process, demand = model.arrivals, model.demand
    assert isinstance(process, Clients) and isinstance(demand, TenantLengths)
    trace = generate("deepseek-r1", 5_000, None, 2, arrivals="fitted")
    assert trace.tenant is not None and trace.tenant.names == process.names == demand.names
    table = np.array(demand.output_quantiles)
    least, most = table[trace.tenant.codes, 0], table[trace.tenant.codes, -1]
    assert np.all((trace.output_tokens >= least) & (trace.output_tokens <= most))
    shares = np.array(process.rates).sum(axis=1)
    np.testing.assert_allclose(demand.shares, shares / shares.sum(), atol=1e-5)


def test_unknown_workload_names_the_near_match():
    with pytest.raises(ValueError, match=r"workload = 'azure-con'; did you mean 'azure-conv'\?"):
        workload("azure-con")


def test_unknown_kinds_and_fields_of_a_model_file_are_named():
    model = Workload("x", "s", "l", "c", 0, None, "m", Independent(Fixed(3), Fixed(4)))
    for old, new, message in [
        ('"fixed"', '"fixd"', r"kind = 'fixd'; did you mean 'fixed'\?"),
        ('"tokens"', '"token"', r"'token' is no field of fixed; did you mean 'tokens'\?"),
    ]:
        with pytest.raises(ValueError, match=message):
            Workload.from_json(model.to_json().replace(old, new))
    assert json.loads(model.to_json())["demand"]["prompt"] == {"kind": "fixed", "tokens": 3}


def test_same_seed_same_trace_and_another_seed_another():
    traces = [generate("azure-conv", 500, 4.0, seed) for seed in (1, 1, 2)]
    assert traces[0].workload_hash == traces[1].workload_hash != traces[2].workload_hash
    sequence = np.random.SeedSequence(7, spawn_key=(3,))
    pair = [generate("azure-conv", 50, 4.0, sequence).workload_hash for _ in range(2)]
    assert pair[0] == pair[1] != generate("azure-conv", 50, 4.0, 7).workload_hash


def test_another_rate_only_scales_poisson_arrivals():
    slow, fast = (generate("azure-conv", 500, rate, seed=1) for rate in (2.0, 8.0))
    np.testing.assert_array_equal(slow.arrival_s, fast.arrival_s * 4.0)
    assert lengths(slow) == lengths(fast)


def test_a_longer_trace_starts_with_the_shorter_one():
    long, short = generate("azure-conv", 500, 4.0, seed=1), generate("azure-conv", 20, 4.0, seed=1)
    assert long.head(20).workload_hash == short.workload_hash


def test_prompts_outputs_and_arrivals_are_independent():
    trace = generate("azure-conv", 50_000, 5.0, seed=0)
    columns = [np.diff(trace.arrival_s, prepend=0.0), trace.prompt_tokens, trace.output_tokens]
    off_diagonal = np.corrcoef(columns)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(50_000)


def test_note_says_which_arrivals_at_which_rate():
    traces = [
        generate("azure-conv", 5, 2.0, 0),
        generate("azure-conv", 5, 2.0, 0, arrivals="gamma", cv=3.0),
        generate("azure-conv", 5, 2.0, 0, arrivals="fitted"),
        generate("azure-conv", 5, 2.0, 0, arrivals=Poisson()),
    ]
    assert [trace.notes[0] for trace in traces] == [
        "poisson arrivals at 2 req/s",
        "gamma (cv 3.0) arrivals at 2 req/s",
        "fitted modulated arrivals at 2 req/s",
        "poisson arrivals at 2 req/s",
    ]
    assert traces[0].workload_hash == traces[3].workload_hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s = 0.0; must be finite and > 0"),
        ({"rate_per_s": float("nan")}, "rate_per_s = nan"),
        ({"n": -1}, "n = -1; must be >= 0"),
        ({"seed": -1}, "seed = -1; must be >= 0"),
        ({"arrivals": "poison"}, r"arrivals = 'poison'; did you mean 'poisson'\?"),
        ({"arrivals": "fited"}, r"arrivals = 'fited'; did you mean 'fitted'\?"),
        ({"arrivals": "gamma", "cv": 0.0}, "cv = 0.0; must be finite and > 0"),
        ({"cv": 2.0}, "cv = 2.0; no parameter of poisson arrivals; it has no parameters"),
        (
            {"arrivals": "fitted", "cv": 2.0},
            "cv = 2.0; a process that is given takes no parameters",
        ),
    ],
)
def test_bad_arguments_are_named(change: dict, message: str):
    arguments = {"n": 5, "rate_per_s": 1.0, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        generate("azure-conv", **arguments)


def test_no_requests_is_an_empty_trace():
    assert all(len(generate(name, 0, 1.0, seed=0)) == 0 for name in workload_names())
    assert all(len(generate(n, 0, None, seed=0, arrivals="fitted")) == 0 for n in WITH_ARRIVALS)
