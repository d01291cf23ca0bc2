"""The error factor of predictions: its distribution."""

import numpy as np
from scipy import stats

from servegym.baselines.error_factor import error_factor


def test_errors_of_the_paper_are_clipped_normals():
    rng = np.array([1], np.uint64)
    factors = np.array([error_factor(rng, 0.5) for _ in range(20_000)])
    inside = factors[(factors > 0.1) & (factors < 5.0)]
    # below .1 lie Phi(-1.8) = 3.6 %
    assert stats.binomtest(int((factors == 0.1).sum()), 20_000, 0.03593).pvalue > 0.001
    assert stats.kstest(inside, stats.truncnorm(-1.8, 8.0, 1.0, 0.5).cdf).pvalue > 0.001
    before = rng[0]
    assert error_factor(rng, 0.0) == 1.0
    assert rng[0] == before
    assert max(error_factor(rng, 9.0) for _ in range(1000)) == 5.0
