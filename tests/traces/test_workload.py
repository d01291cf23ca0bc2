"""Fitted workloads: what is independent of what, and that the numbers are the data's."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import Trace, Workload, generate, workload, workload_names
from servegym.traces.fit import fit_lengths, main, read_lengths, read_requests

FILES = {
    "azure-conv": "traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "sharegpt": "traces/sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz",
}


def lengths(trace: Trace) -> tuple[list[int], list[int]]:
    """Prompt and output lengths as lists."""
    return trace.prompt_tokens.tolist(), trace.output_tokens.tolist()


def real_lengths(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the file that a workload was fitted on."""
    requests = read_requests(data_dir / FILES[name])
    if isinstance(requests, Trace):
        return requests.prompt_tokens, requests.output_tokens
    return requests


def test_shipped_workloads_say_where_they_come_from():
    assert set(FILES) <= set(workload_names())
    for name in workload_names():
        model = workload(name)
        assert model.name == name
        assert all([model.source, model.licence, model.citation, model.n_rows, model.made_by])


def test_only_azure_conv_has_a_recorded_rate():
    assert workload("azure-conv").recorded_rate_per_s == pytest.approx(5.53, abs=0.001)
    assert workload("sharegpt").recorded_rate_per_s is None


def test_unknown_workload_names_the_near_match():
    with pytest.raises(ValueError, match=r"workload = 'azure-con'; did you mean 'azure-conv'\?"):
        workload("azure-con")


def test_model_file_round_trips():
    model = workload("azure-conv")
    assert Workload.from_json(model.to_json()) == model


def test_same_seed_same_trace_and_another_seed_another():
    traces = [generate("azure-conv", 500, 4.0, seed) for seed in (1, 1, 2)]
    assert traces[0].workload_hash == traces[1].workload_hash != traces[2].workload_hash
    sequence = np.random.SeedSequence(7, spawn_key=(3,))
    pair = [generate("azure-conv", 50, 4.0, sequence).workload_hash for _ in range(2)]
    assert pair[0] == pair[1] != generate("azure-conv", 50, 4.0, 7).workload_hash


def test_lengths_do_not_depend_on_rate_process_or_cv():
    base = generate("azure-conv", 500, 4.0, seed=1)
    for other in (
        generate("azure-conv", 500, 9.0, seed=1),
        generate("azure-conv", 500, 4.0, seed=1, arrivals="gamma", cv=3.0),
    ):
        assert lengths(other) == lengths(base)
        assert other.workload_hash != base.workload_hash


def test_another_rate_only_scales_the_arrivals():
    slow, fast = (generate("azure-conv", 500, rate, seed=1) for rate in (2.0, 8.0))
    np.testing.assert_array_equal(slow.arrival_s, fast.arrival_s * 4.0)


def test_a_longer_trace_starts_with_the_shorter_one():
    long, short = generate("azure-conv", 500, 4.0, seed=1), generate("azure-conv", 20, 4.0, seed=1)
    assert long.head(20).workload_hash == short.workload_hash


@pytest.mark.parametrize(("arrivals", "cv"), [("poisson", 1.0), ("gamma", 0.5), ("gamma", 3.0)])
def test_gaps_have_the_rate_and_cv_asked_for(arrivals, cv: float):
    n = 100_000
    trace = generate("azure-conv", n, 5.0, seed=0, arrivals=arrivals, cv=cv)
    gaps = np.diff(trace.arrival_s, prepend=0.0)
    # The mean's standard error is cv / sqrt(n) of the mean; five of them.
    assert gaps.mean() * 5.0 == pytest.approx(1.0, abs=5 * cv / np.sqrt(n))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_prompts_outputs_and_arrivals_are_independent():
    trace = generate("azure-conv", 50_000, 5.0, seed=0)
    columns = [np.diff(trace.arrival_s, prepend=0.0), trace.prompt_tokens, trace.output_tokens]
    off_diagonal = np.corrcoef(columns)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(50_000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s = 0.0; must be finite and > 0"),
        ({"rate_per_s": float("nan")}, "rate_per_s = nan"),
        ({"n": -1}, "n = -1; must be >= 0"),
        ({"seed": -1}, "seed = -1; must be >= 0"),
        ({"arrivals": "poison"}, r"arrivals = 'poison'; did you mean 'poisson'\?"),
        ({"arrivals": "gamma", "cv": 0.0}, "cv = 0.0; must be finite and > 0"),
        ({"cv": 2.0}, "cv = 2.0; poisson arrivals have cv 1"),
    ],
)
def test_bad_arguments_are_named(change: dict, message: str):
    arguments = {"n": 5, "rate_per_s": 1.0, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        generate("azure-conv", **arguments)


def test_no_requests_is_an_empty_trace():
    assert len(generate("azure-conv", 0, 1.0, seed=0)) == 0


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_fitted_quantiles_stay_inside_the_data_and_increase(tokens: list[int]):
    model = fit_lengths((tokens, tokens), "made")
    drawn = model.prompt.quantile(np.arange(501) / 500.0)
    assert drawn[0] == min(tokens) and drawn[-1] == max(tokens)
    assert np.all(np.diff(drawn) >= 0)


def test_constant_lengths_are_fitted_exactly():
    model = fit_lengths((np.full(9, 512), np.full(9, 7)), "constant")
    trace = generate(model, 100, 1.0, seed=0)
    assert set(trace.prompt_tokens) == {512} and set(trace.output_tokens) == {7}


def test_fit_refuses_nothing_and_unequal_columns():
    with pytest.raises(ValueError, match="0 prompt and 0 output lengths"):
        fit_lengths(([], []), "empty")
    with pytest.raises(ValueError, match="2 prompt and 1 output lengths"):
        fit_lengths(([1, 2], [1]), "unequal")


def test_command_fits_a_file_of_lengths(tmp_path: Path):
    source = tmp_path / "lengths.csv"
    source.write_text("num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    about = ["--source", "made", "--licence", "none", "--citation", "none"]
    main([str(source), "--name", "mine", "--out", str(tmp_path / "mine.json"), *about])
    model = Workload.from_json((tmp_path / "mine.json").read_text())
    assert (model.n_rows, model.prompt.mean, model.output.mean) == (2, 6.0, 7.0)
    assert model.made_by == "python -m servegym.traces.fit lengths.csv --name mine"
    with pytest.raises(SystemExit):
        main([str(source), "--name", "mine", "--source", "made"])


def test_lengths_of_an_unknown_file_are_refused(tmp_path: Path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"x.csv has no known length columns; found a, b"):
        read_lengths(tmp_path / "x.csv")


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_tables_have_the_quantiles_and_mean_of_the_real_file(data_dir: Path, name: str):
    model = workload(name)
    levels = (np.arange(1_000_000) + 0.5) / 1e6
    pairs = zip((model.prompt, model.output), real_lengths(data_dir, name), strict=True)
    for table, tokens in pairs:
        drawn = table.quantile(levels)
        assert drawn.mean() == pytest.approx(tokens.mean(), rel=0.002)
        assert drawn.std() == pytest.approx(tokens.std(), rel=0.01)
        for level in (0.01, 0.5, 0.9, 0.99, 0.999):
            assert np.quantile(drawn, level) == pytest.approx(np.quantile(tokens, level), rel=0.01)
        assert abs(int(drawn.max()) - int(tokens.max())) <= 0.01 * tokens.max()


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_generated_traces_have_the_quantiles_of_the_real_file(data_dir: Path, name: str):
    trace = generate(name, 400_000, 5.0, seed=0)
    drawn_pair = (trace.prompt_tokens, trace.output_tokens)
    for drawn, tokens in zip(drawn_pair, real_lengths(data_dir, name), strict=True):
        assert drawn.mean() == pytest.approx(tokens.mean(), rel=0.01)
        for level in (0.5, 0.9, 0.99):
            assert np.quantile(drawn, level) == pytest.approx(np.quantile(tokens, level), rel=0.01)


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_recorded_command_makes_the_shipped_model_again(data_dir: Path, tmp_path: Path, name: str):
    main([str(data_dir / FILES[name]), "--name", name, "--out", str(tmp_path / "again.json")])
    assert Workload.from_json((tmp_path / "again.json").read_text()) == workload(name)
