"""Tier mixes against the published tables and formulas, worked out by hand."""

import math

import numpy as np
import pytest

from servegym.traces import Trace, mix_names, tier_fractions

PUBLISHED = {
    ("gaussian", 2): [0.30, 0.70],
    ("gaussian", 3): [0.15, 0.70, 0.15],
    ("gaussian", 5): [0.05, 0.20, 0.50, 0.20, 0.05],
    ("enterprise", 2): [0.25, 0.75],
    ("enterprise", 3): [0.10, 0.30, 0.60],
    ("enterprise", 4): [0.10, 0.15, 0.15, 0.60],
    ("enterprise", 5): [0.10, 0.30, 0.50, 0.08, 0.02],
    ("enterprise", 8): [0.1, *[0.05] * 6, 0.6],
    ("power-law", 2): [0.10, 0.90],
    ("power-law", 3): [0.05, 0.15, 0.80],
    ("power-law", 5): [0.02, 0.08, 0.70, 0.15, 0.05],
    ("uniform", 4): [0.25] * 4,
}


@pytest.mark.parametrize(("mix", "tiers"), PUBLISHED)
def test_mix_is_as_published(mix: str, tiers: int):
    assert tier_fractions(mix, tiers) == pytest.approx(PUBLISHED[mix, tiers], abs=1e-12)


def test_formulas_hold_where_there_is_no_table():
    # Gaussian, K = 4: distances to tier 2 are 2, 1, 0, 1; weights exp(-d^2 / 2).
    weights = [math.exp(-2.0), math.exp(-0.5), 1.0, math.exp(-0.5)]
    assert tier_fractions("gaussian", 4) == pytest.approx([w / sum(weights) for w in weights])
    # Power law, K = 4: 1, 2^-1.5, 3^-1.5, 4^-1.5 = 1, .3536, .1925, .125; sum 1.6710.
    assert tier_fractions("power-law", 4) == pytest.approx(
        [0.5984, 0.2116, 0.1152, 0.0748], abs=1e-4
    )


def test_fair_mixes_keep_one_shape_for_every_number_of_tiers():
    # Enterprise, K = 5, is .10 .30 .50 .08 .02. In halves: the third bin is split, .10 + .30 + .25.
    assert tier_fractions("fair-enterprise", 5) == pytest.approx([0.10, 0.30, 0.50, 0.08, 0.02])
    assert tier_fractions("fair-enterprise", 2) == pytest.approx([0.65, 0.35])
    # In quarters of 1.25 bins each: .10 + .25 * .30, .75 * .30 + .5 * .50, ...
    assert tier_fractions("fair-enterprise", 4) == pytest.approx([0.175, 0.475, 0.31, 0.04])
    # In tenths each bin is halved.
    halves = [0.05, 0.05, 0.15, 0.15, 0.25, 0.25, 0.04, 0.04, 0.01, 0.01]
    assert tier_fractions("fair-enterprise", 10) == pytest.approx(halves)


@pytest.mark.parametrize("mix", mix_names())
@pytest.mark.parametrize("tiers", range(1, 11))
def test_every_mix_is_a_distribution(mix: str, tiers: int):
    fractions = tier_fractions(mix, tiers)
    assert len(fractions) == tiers
    assert min(fractions) > 0.0
    assert sum(fractions) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "enterprise", "power-law"])
@pytest.mark.parametrize("tiers", range(1, 11))
def test_fair_mixes_give_their_first_half_the_same_share_whatever_the_tiers(name: str, tiers: int):
    cumulative = np.concatenate([[0.0], np.cumsum(tier_fractions(f"fair-{name}", 2 * tiers))])
    assert cumulative[tiers] == pytest.approx(tier_fractions(f"fair-{name}", 2)[0])


def test_unknown_mixes_and_tiers_are_refused():
    with pytest.raises(ValueError, match="tier mix = 'enterprize'; did you mean 'enterprise'?"):
        tier_fractions("enterprize", 4)
    with pytest.raises(ValueError, match="tiers = 0; must be >= 1"):
        tier_fractions("uniform", 0)


def test_a_mix_is_assigned_by_name_and_number_of_tiers():
    n = 20_000
    trace = Trace(np.arange(n), np.full(n, 5), np.full(n, 5))
    mixed = trace.assign_tiers("enterprise", tiers=4, seed=2)
    shares = np.bincount(mixed.tier, minlength=4) / n
    # The standard error of a share of .6 is sqrt(.6 * .4 / 20,000) = .0035; five of them.
    np.testing.assert_allclose(shares, [0.10, 0.15, 0.15, 0.60], atol=0.0175)
    np.testing.assert_array_equal(
        mixed.tier, trace.assign_tiers([0.10, 0.15, 0.15, 0.60], seed=2).tier
    )
    assert mixed.notes == ("tiers enterprise of 4",)
    with pytest.raises(ValueError, match="'enterprise' needs the number of tiers"):
        trace.assign_tiers("enterprise", seed=2)
    with pytest.raises(ValueError, match="tiers = 3; the mix has 2 fractions"):
        trace.assign_tiers([0.5, 0.5], seed=2, tiers=3)
