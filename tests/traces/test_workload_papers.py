"""The papers' synthetic workloads have the figures their papers give."""

import numpy as np
import pytest

from servegym.traces import generate, workload
from servegym.traces.arrivals import UniformPhases
from servegym.traces.demand.categories import CategoryLengths
from servegym.traces.demand.requests import Split

BASES = np.array([64, 256, 384, 512])


def test_zipf_totals_have_the_mean_and_median_of_the_paper():
    demand = workload("zipf-64-512").demand
    assert isinstance(demand, Split)
    totals = demand.total.quantile((np.arange(500_000) + 0.5) / 500_000)
    assert (totals.min(), totals.max()) == (64, 512)
    assert totals.mean() == pytest.approx(106, abs=0.5) and np.median(totals) == 71
    trace = generate("zipf-64-512", 5_000, None, seed=0)
    both = trace.prompt_tokens + trace.output_tokens
    assert both.min() == 64 and both.max() <= 512
    # Two to one, to the nearest token.
    assert np.abs(trace.prompt_tokens - 2 * trace.output_tokens).max() <= 1
    assert trace.mean_rate_per_s == pytest.approx(1_250, rel=0.07)


@pytest.mark.parametrize("pair", [(128, 128), (256, 256), (512, 512), (128, 512), (512, 128)])
def test_power_laws_have_their_means_up_to_rounding_and_the_cut(pair: tuple[int, int]):
    model = workload(f"powerlaw-{pair[0]}-{pair[1]}")
    means = (model.mean_prompt_tokens, model.mean_output_tokens)
    assert means == pytest.approx(pair, rel=0.01)
    prompts, outputs = model.draw_lengths(200_000, 0)
    assert max(prompts.max(), outputs.max()) <= 6_144
    # Heavier tails for shorter means: P(rank 1) = 1 / sum of r^-a, .61 at 128 and a = 2.
    if pair[0] == 128:
        assert np.mean(prompts == prompts.min()) == pytest.approx(0.609, abs=0.006)


def test_any_pair_of_fixed_lengths_has_a_name():
    trace = generate("fixed-300-20", 10, 1.0, seed=0)
    assert set(trace.prompt_tokens) == {300} and set(trace.output_tokens) == {20}
    assert trace.name == workload("fixed-300-20").name == "fixed-300-20"
    for name in ("fixed-0-5", "fixed-5", "fixed-5-x", "powerlaw-64-64"):
        with pytest.raises(ValueError, match=f"workload = '{name}'"):
            workload(name)


def test_driftsched_has_the_mixes_gaps_and_tenants_of_the_paper():
    trace = generate("driftsched-words", 3_000, None, 0, arrivals="fitted")
    assert trace.tenant is not None and trace.category is not None
    assert trace.tenant.names == ("premium", "standard", "batch")
    assert trace.category.names == ("short_qa", "summary", "technical", "report")
    shares = [
        np.bincount(codes, minlength=4) / len(codes) for codes in halves(trace.category.codes)
    ]
    np.testing.assert_allclose(shares[0], [0.40, 0.25, 0.25, 0.10], atol=0.07)
    np.testing.assert_allclose(shares[1], [0.10, 0.20, 0.40, 0.30], atol=0.05)
    np.testing.assert_allclose(np.bincount(trace.tenant.codes) / 3_000, 1 / 3, atol=0.04)
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (20, 36)
    gaps = np.diff(trace.arrival_s, prepend=0.0)
    first, second = halves(gaps)
    assert first.min() >= 0.05 and first.max() <= 0.15
    assert 15.005 <= second[0] <= 15.03 and second[1:].min() >= 0.005 and second[1:].max() <= 0.03
    process = workload("driftsched-words").arrivals
    # 1,000 * .1 + 2,000 * .0175 + 15 = 150 s.
    assert isinstance(process, UniformPhases) and process.rate_per_s == pytest.approx(20.0)


def halves(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two phases."""
    return column[:1_000], column[1_000:]


def test_words_never_pass_the_base_and_tokens_do():
    drawn = {
        name: workload(name).demand.draw(3_000, 0)
        for name in ("driftsched-words", "driftsched-tokens")
    }
    words, tokens = drawn.values()
    assert words.category is not None and tokens.category is not None
    np.testing.assert_array_equal(words.category.codes, tokens.category.codes)
    base = BASES[words.category.codes]
    expected = np.maximum(np.rint(0.75 * np.minimum(tokens.output_tokens, base)), 1)
    np.testing.assert_array_equal(words.output_tokens, expected)
    assert np.mean(tokens.output_tokens > base) > 0.1


@pytest.mark.parametrize(
    ("form", "at", "factor"),
    [("step", 1_999, 1.0), ("step", 2_000, 1.5), ("ramp", 0, 1.0), ("ramp", 1_500, 1.5)],
)
def test_drift_forms_multiply_the_same_lengths(form: str, at: int, factor: float):
    plain = workload("driftsched-tokens").demand.draw(3_000, 4).output_tokens
    drifted = workload(f"driftsched-tokens-{form}").demand.draw(3_000, 4).output_tokens
    assert drifted[at] == np.rint(plain[at] * factor)


def test_categories_drift_apart():
    plain = workload("driftsched-tokens").demand.draw(3_000, 4)
    drifted = workload("driftsched-tokens-category").demand.draw(3_000, 4)
    assert plain.category is not None
    factors = np.array([2.0, 0.5, 1.5, 0.75])[plain.category.codes]
    late = slice(2_000, None)
    np.testing.assert_array_equal(drifted.output_tokens[:2_000], plain.output_tokens[:2_000])
    expected = np.rint(plain.output_tokens * factors)[late]
    np.testing.assert_array_equal(drifted.output_tokens[late], expected)


def test_stand_in_lengths_are_lognormal():
    demand = workload("driftsched-tokens").demand
    assert isinstance(demand, CategoryLengths)
    drawn = demand.outputs[2].quantile((np.arange(100_000) + 0.5) / 100_000)
    # Technical: mu 5.818, sigma .620: median exp(mu) = 336, mean exp(mu + sigma^2 / 2) = 407.5.
    assert np.median(drawn) == pytest.approx(336, abs=1)
    assert drawn.mean() == pytest.approx(407.5, rel=0.005)
    assert np.log(drawn).std() == pytest.approx(0.620, rel=0.01)
