"""What requests ask for: distributions against their formulas, splits, tenants, drifting tasks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import Labels
from servegym.traces.demand.categories import CategoryLengths, LengthDrift
from servegym.traces.demand.distributions import (
    Distribution,
    Fixed,
    PowerLaw,
    QuantileTable,
    Uniform,
    Zipf,
)
from servegym.traces.demand.guide_table import GuideTable
from servegym.traces.demand.requests import Independent, Split
from servegym.traces.demand.tenants import TenantLengths

LEVELS = (np.arange(200_000) + 0.5) / 200_000
TABLE = QuantileTable((0.0, 0.5, 1.0), (10, 20, 100), 37.5)


@pytest.mark.parametrize(
    "distribution",
    [TABLE, Fixed(7), Uniform(20, 36), PowerLaw(1.5, 256, 6144), Zipf(1.2, 64, 512)],
)
def test_quantiles_increase_stay_in_range_and_have_the_mean(distribution: Distribution):
    drawn = distribution.quantile(LEVELS)
    assert drawn.dtype == np.int32 and drawn.min() >= 1
    assert np.all(np.diff(drawn) >= 0)
    assert drawn.mean() == pytest.approx(distribution.mean, rel=2e-3)
    edges = distribution.quantile(np.array([0.0, 1.0]))
    assert edges[0] == drawn[0] and edges[1] >= drawn[-1]


@given(
    st.sets(st.floats(0.0, 1.0).map(lambda level: round(level, 14)), min_size=1, max_size=40).map(
        sorted
    ),
    st.lists(st.floats(0.0, 1.0), max_size=40),
    st.integers(0, 2**32 - 1),
)
def test_guide_table_interpolates_as_numpy_does_to_the_bit(levels, others, seed):
    """At random levels, those of the table, and their neighbours; tables need not reach 0 or 1."""
    random = np.random.default_rng(seed)
    values = random.integers(1, 10**6, len(levels))
    edges = np.array(levels)
    near = np.clip([np.nextafter(edges, 0.0), edges, np.nextafter(edges, 1.0)], 0.0, 1.0)
    u = np.concatenate([near.ravel(), others, random.random(200), [0.0, 1.0]])
    assert GuideTable(levels, values.tolist()).interpolate(u).tolist() == (
        np.interp(u, edges, values).tolist()
    )


def test_guide_table_keeps_the_shape_of_the_levels():
    table = GuideTable((0.0, 1.0), (10.0, 20.0))
    assert float(table.interpolate(0.25)) == 12.5
    assert table.interpolate([[0.0, 0.5], [0.75, 1.0]]).tolist() == [[10.0, 15.0], [17.5, 20.0]]


def test_quantile_table_is_linear_between_levels():
    assert TABLE.quantile(np.array([0.0, 0.25, 0.75, 1.0])).tolist() == [10, 15, 60, 100]


@given(st.integers(1, 50), st.integers(0, 50))
def test_uniform_lengths_are_equally_often(least: int, width: int):
    drawn = Uniform(least, least + width).quantile((np.arange(1_020) + 0.5) / 1_020)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(least, least + width + 1))
    assert np.ptp(counts) <= 1


def test_power_law_by_hand():
    # Mean 2: ranks 1, 2, 3 with weights 1, 1/2, 1/3 -> 6/11, 3/11, 2/11; mean rank 18/11.
    # Times 11/9: 1.22, 2.44, 3.67 -> rounded up 2, 3, 4; the cap makes the last 3.
    law = PowerLaw(1.0, 2, 3)
    levels = np.array([0.0, 0.545, 0.546, 0.818, 0.819, 1.0])
    assert law.quantile(levels).tolist() == [2, 2, 3, 3, 3, 3]
    assert PowerLaw(1.0, 2, 9).quantile(levels).tolist() == [2, 2, 3, 3, 4, 4]
    assert law.mean == pytest.approx(2 * 6 / 11 + 3 * 5 / 11)


def test_zipf_by_hand():
    # Four values, exponent 2; the normaliser leaves out the last: 1 + 1/4 + 1/9 = 49/36.
    # P(first) = 36/49 = .735, P(second) = 9/49 to .918; then
    # eta = (1 - (2/4)^-1) / (1 - 36/49) = -49/13, rank = 4 / (eta u - eta + 1): u = .95 -> 3.37.
    law = Zipf(2.0, 10, 13)
    assert law.quantile(np.array([0.0, 0.734, 0.736, 0.917, 0.95, 1.0])).tolist() == [
        *(10, 10, 11, 11, 13, 13)
    ]


def test_split_gives_one_part_in_three_to_the_output():
    drawn = Split(Fixed(100), 2.0).draw(3, 0)
    assert drawn.prompt_tokens.tolist() == [67] * 3 and drawn.output_tokens.tolist() == [33] * 3
    shortest = Split(Fixed(2), 9.0).draw(1, 0)
    assert (shortest.prompt_tokens[0], shortest.output_tokens[0]) == (1, 1)


def test_prompts_and_outputs_are_independent():
    drawn = Independent(TABLE, TABLE).draw(50_000, 0)
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 5 / np.sqrt(50_000)


def tenants() -> TenantLengths:
    """Two tenants, one of them three times as busy."""
    return TenantLengths(
        ("big", "small"),
        (0.75, 0.25),
        (0.0, 1.0),
        ((10, 10), (100, 300)),
        ((1, 3), (50, 50)),
        mean_prompt_tokens=57.5,
        mean_output_tokens=14.0,
    )


def test_tenants_have_their_shares_and_their_own_lengths():
    model = tenants()
    drawn = model.draw(20_000, 3)
    assert drawn.tenant is not None and drawn.tenant.names == ("big", "small")
    is_small = drawn.tenant.codes == 1
    assert is_small.mean() == pytest.approx(0.25, abs=0.02)
    assert set(drawn.prompt_tokens[~is_small]) == {10}
    assert set(drawn.output_tokens[is_small]) == {50}
    assert drawn.prompt_tokens[is_small].mean() == pytest.approx(200, abs=2)
    assert drawn.prompt_tokens.mean() == pytest.approx(model.mean_prompt_tokens, rel=0.03)


def test_tenants_named_by_the_arrivals_are_kept_and_others_refused():
    given_tenant = Labels(("big", "small"), [1, 0, 1])
    drawn = tenants().draw(3, 0, given_tenant)
    assert drawn.tenant is given_tenant
    assert drawn.output_tokens[[0, 2]].tolist() == [50, 50] and drawn.output_tokens[1] <= 3
    with pytest.raises(ValueError, match=r"tenants \('x',\)...; not the workload's"):
        tenants().draw(1, 0, Labels(("x",), [0]))


def tasks(**changes) -> CategoryLengths:
    """Two tasks of fixed lengths 100 and 200; from request 10 on only the second."""
    fixed = {
        "tenants": ("p", "s"),
        "categories": ("short", "long"),
        "starts": (0, 10),
        "mixes": ((1.0, 0.0), (0.0, 1.0)),
        "prompt": Fixed(5),
        "outputs": (Fixed(100), Fixed(200)),
        "planned_requests": 40,
    }
    return CategoryLengths(**(fixed | changes))


def test_mix_changes_at_the_start_of_a_phase():
    drawn = tasks().draw(12, 0)
    assert drawn.category is not None
    assert drawn.category.codes.tolist() == [0] * 10 + [1] * 2
    assert drawn.output_tokens.tolist() == [100] * 10 + [200] * 2
    # 10 of 100 and 30 of 200 tokens.
    assert tasks().mean_output_tokens == pytest.approx(175.0)


def test_mix_is_met_and_tenants_are_even():
    drawn = tasks(mixes=((0.7, 0.3), (0.2, 0.8)), starts=(0, 20_000)).draw(40_000, 1)
    assert drawn.category is not None and drawn.tenant is not None
    codes = drawn.category.codes
    assert codes[:20_000].mean() == pytest.approx(0.3, abs=0.017)
    assert codes[20_000:].mean() == pytest.approx(0.8, abs=0.015)
    assert drawn.tenant.codes.mean() == pytest.approx(0.5, abs=0.0125)


@pytest.mark.parametrize(
    ("drift", "expected"),
    [
        (LengthDrift(2, 2, (1.5, 1.0)), [100, 100, 150, 150, 150, 150]),
        (LengthDrift(1, 5, (3.0, 1.0)), [100, 100, 150, 200, 250, 300]),
        (LengthDrift(0, 0, (0.25, 1.0)), [25] * 6),
    ],
)
def test_lengths_drift_as_step_and_as_ramp(drift: LengthDrift, expected: list[int]):
    assert tasks(drift=drift).draw(6, 0).output_tokens.tolist() == expected


def test_each_category_drifts_by_its_own_factor():
    drawn = tasks(drift=LengthDrift(8, 8, (2.0, 0.5))).draw(12, 0)
    assert drawn.output_tokens.tolist() == [100] * 8 + [200] * 2 + [100] * 2


def test_limits_cut_before_words_are_counted():
    drawn = tasks(limits=(80, 999), words_per_token=0.75).draw(11, 0)
    assert drawn.output_tokens.tolist() == [60] * 10 + [150]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(0), "tokens = 0; must be a whole number >= 1"),
        (lambda: Uniform(9, 8), "most = 8; must be a whole number >= 9"),
        (lambda: PowerLaw(2.0, 128, 0), "cap = 0; must be a whole number >= 1"),
        (lambda: Zipf(1.0, 64, 512), "exponent = 1.0; must be > 0 and not 1"),
        (lambda: Zipf(1.2, 64, 65), "most = 65; must be a whole number >= 66"),
    ],
)
def test_bad_distributions_are_named(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()
