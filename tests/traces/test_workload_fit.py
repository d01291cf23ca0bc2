"""Fitting: the numbers are the data's, and a fitted model fits what it draws."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import Trace, Workload, generate, workload
from servegym.traces.arrivals import Mmpp, Modulated, OnOff, Poisson
from servegym.traces.demand.distributions import QuantileTable
from servegym.traces.demand.requests import Independent
from servegym.traces.dispersion import index_of_dispersion
from servegym.traces.fit import fit, main, read_requests
from servegym.traces.fit_arrivals import fit_arrivals
from servegym.traces.poisson_hmm import fit_poisson_hmm

FILES = {
    "azure-conv": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "azure-code": "azure_llm_2023/AzureLLMInferenceTrace_code.csv",
    "mooncake-conversation": "mooncake_fast25/conversation_trace.jsonl.gz",
    "burstgpt": "burstgpt_sample/BurstGPT_1.first400.csv",
    "sharegpt": "sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz",
    "arxiv-summarization": (
        "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz"
    ),
    "deepseek-r1": "servegen/reason_deepseek-r1.tar.gz",
}
OF_REQUESTS = [name for name in FILES if name != "deepseek-r1"]


def tables(model: Workload) -> tuple[QuantileTable, QuantileTable]:
    """The two quantile tables of a workload fitted to requests."""
    demand = model.demand
    assert isinstance(demand, Independent)
    assert isinstance(demand.prompt, QuantileTable) and isinstance(demand.output, QuantileTable)
    return demand.prompt, demand.output


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_fitted_quantiles_stay_inside_the_data_and_increase(tokens: list[int]):
    drawn = tables(fit((tokens, tokens)))[0].quantile(np.arange(501) / 500.0)
    assert drawn[0] == min(tokens) and drawn[-1] == max(tokens)
    assert np.all(np.diff(drawn) >= 0)


def test_constant_lengths_are_fitted_exactly():
    trace = generate(fit((np.full(9, 512), np.full(9, 7))), 100, 1.0, seed=0)
    assert set(trace.prompt_tokens) == {512} and set(trace.output_tokens) == {7}


def test_fit_refuses_nothing_and_unequal_columns():
    with pytest.raises(ValueError, match="0 prompt and 0 output lengths"):
        fit(([], []))
    with pytest.raises(ValueError, match="2 prompt and 1 output lengths"):
        fit(([1, 2], [1]))
    with pytest.raises(ValueError, match=r"output_tokens\[1\] = 0; must be >= 1"):
        fit(([1, 2], [1, 0]))


def test_fitting_a_drawn_trace_finds_the_model_again():
    drawn = generate("azure-conv", 40_000, 5.53, seed=3)
    again = fit(drawn, name="again")
    assert again.n_rows == 40_000 and again.recorded_rate_per_s == pytest.approx(5.53, rel=0.03)
    for fitted, shipped in zip(tables(again), tables(workload("azure-conv")), strict=True):
        assert fitted.mean == pytest.approx(shipped.mean, rel=0.03)
        for level in (0.5, 0.9, 0.99):
            values = [float(t.quantile(np.array([level]))[0]) for t in (fitted, shipped)]
            assert values[0] == pytest.approx(values[1], rel=0.05)


def test_poisson_arrivals_are_fitted_by_a_rate_that_hardly_moves():
    process = fit_arrivals(Poisson().draw(40_000, 5.0, 0))
    assert isinstance(process, Modulated)
    # 266 windows of 150: counts vary by sqrt(2/266) * 1/150 beyond Poisson's own, at most.
    assert np.sum(np.square(process.amplitudes)) / 2 < 4 * np.sqrt(2 / 266) / 150


def test_modulated_arrivals_are_fitted_with_their_swing_and_time_scale():
    made = Modulated(30.0, 120, (0.0, 0.0, 0.4))
    process = fit_arrivals(made.draw(36_000, 10.0, 1))
    assert isinstance(process, Modulated) and process.window_s == 30.0
    assert int(np.argmax(process.amplitudes)) == 2
    # The rate's variance is .4^2 / 2 = .08; counts of 300 blur it little.
    assert np.sum(np.square(process.amplitudes)) / 2 == pytest.approx(0.08, rel=0.1)


def test_bursts_and_silences_are_fitted_by_a_chain_of_like_dispersion():
    arrival_s = OnOff(6.0, 30.0).draw(12_000, 3.0, 2)
    process = fit_arrivals(arrival_s)
    assert isinstance(process, Mmpp)
    silent = int(np.argmin(process.rates))
    assert process.rates[silent] < 0.01
    assert process.occupancy()[silent] == pytest.approx(30 / 36, abs=0.06)
    for window_s in (1.0, 10.0, 60.0):
        real = index_of_dispersion(arrival_s, window_s)
        drawn = [index_of_dispersion(process.draw(12_000, 3.0, s), window_s) for s in range(10)]
        assert np.mean(np.array(drawn, float)) == pytest.approx(real, rel=0.15)


def test_short_traces_are_fitted_by_poisson():
    assert fit_arrivals(np.arange(199)) == Poisson()
    assert isinstance(fit_arrivals(np.arange(200)), Modulated)
    assert fit_arrivals(np.zeros(500)) == Poisson()
    assert fit(Trace([0.0, 1.0], [3, 4], [5, 6])).arrivals == Poisson()
    assert fit(Trace([1.0, 1.0], [3, 4], [5, 6])).arrivals is None


@pytest.mark.parametrize("stretch", [0.001, 30.0])
def test_windows_follow_the_span_of_the_trace(stretch: float):
    # 3,000 s becomes 3 s, windows 1/60 of it, or 90,000 s, windows 1/500 of it.
    wander, bursts = Modulated(30.0, 100, (0.0, 0.4)), OnOff(6.0, 30.0)
    process = fit_arrivals(stretch * wander.draw(30_000, 10.0, 1))
    assert isinstance(process, Modulated) and process.n_windows in (59, 60, 499, 500)
    assert int(np.argmax(process.amplitudes)) == 1
    chain = fit_arrivals(stretch * bursts.draw(9_000, 3.0, 1))
    assert isinstance(chain, Mmpp)
    silent = int(np.argmin(chain.rates))
    assert chain.stay_s[silent] == pytest.approx(30.0 * stretch, rel=0.4)


def test_hidden_markov_model_finds_two_clear_states():
    random = np.random.default_rng(0)
    states = np.repeat(np.arange(200) % 2, random.geometric(0.1, 200))
    counts = random.poisson(np.array([1.0, 20.0])[states])
    model = fit_poisson_hmm(counts, 2)
    np.testing.assert_allclose(model.means, [1.0, 20.0], rtol=0.05)
    assert np.diag(model.transitions) == pytest.approx([0.9, 0.9], abs=0.03)


def test_command_fits_a_file_of_lengths(tmp_path: Path):
    source = tmp_path / "lengths.csv"
    source.write_text("num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    about = ["--source", "made", "--licence", "none", "--citation", "none"]
    main([str(source), "--name", "mine", "--out", str(tmp_path / "mine.json"), *about])
    model = Workload.from_json((tmp_path / "mine.json").read_text())
    assert (model.n_rows, model.mean_prompt_tokens, model.mean_output_tokens) == (2, 6.0, 7.0)
    assert model.recorded_rate_per_s is model.arrivals is None
    assert model.made_by == "python -m servegym.traces.fit lengths.csv --name mine"
    with pytest.raises(SystemExit):
        main([str(source), "--name", "mine", "--source", "made"])


def test_command_spreads_batches_or_leaves_times_out(tmp_path: Path):
    source, out = tmp_path / "trace.csv", tmp_path / "mine.json"
    rows = [f"{3 * (i // 10)},{i + 1},5" for i in range(2_000)]
    source.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    about = ["--source", "made", "--licence", "none", "--citation", "none"]
    command = [str(source), "--name", "mine", "--out", str(out), *about]
    main([*command, "--spread-s", "3"])
    spread = Workload.from_json(out.read_text())
    assert spread.made_by.endswith("--name mine --spread-s 3")
    # 2,000 requests in 200 ticks of 3 s; unspread, the span would be 597 s and the rate 3.348.
    assert spread.recorded_rate_per_s == pytest.approx(2_000 / 600, rel=0.003)
    main([*command, "--lengths-only"])
    without = Workload.from_json(out.read_text())
    assert without.made_by.endswith("--lengths-only")
    assert without.recorded_rate_per_s is without.arrivals is None and without.n_rows == 2_000


def real_lengths(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the file that a workload was fitted on."""
    requests = read_requests(data_dir / "traces" / FILES[name])
    if isinstance(requests, Trace):
        return requests.prompt_tokens, requests.output_tokens
    return requests


@pytest.mark.data
@pytest.mark.parametrize("name", OF_REQUESTS)
def test_tables_have_the_quantiles_and_mean_of_the_real_file(data_dir: Path, name: str):
    levels = (np.arange(1_000_000) + 0.5) / 1e6
    pairs = zip(tables(workload(name)), real_lengths(data_dir, name), strict=True)
    for table, tokens in pairs:
        drawn = table.quantile(levels)
        assert drawn.mean() == pytest.approx(tokens.mean(), rel=0.002)
        assert drawn.std() == pytest.approx(tokens.std(), rel=0.01)
        for level in (0.01, 0.5, 0.9, 0.99, 0.999):
            expected = np.quantile(tokens, level, method="inverted_cdf")
            assert np.quantile(drawn, level) == pytest.approx(expected, rel=0.01)
        assert abs(int(drawn.max()) - int(tokens.max())) <= 0.01 * tokens.max()


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_recorded_command_makes_the_shipped_model_again(data_dir: Path, tmp_path: Path, name: str):
    words = workload(name).made_by.removeprefix("python -m servegym.traces.fit ").split()
    assert words[0] == Path(FILES[name]).name
    out = tmp_path / "again.json"
    main([str(data_dir / "traces" / FILES[name]), *words[1:], "--out", str(out)])
    assert Workload.from_json(out.read_text()) == workload(name)
