"""Observing completions and what-if, by hand.

An iteration takes 10 ms, a block is 16 tokens. Times are in ms.
"""

import math

import pytest

from reference.cluster import ReferenceCluster
from reference.hand_worked import load, ms, play, requests, spec, to
from reference.model import PS_PER_MS, Request
from reference.options import Options
from reference.what_if import WhatIf, clipped, plug_in


class MeanOfEnded:
    """Predicts the mean output of what it has been shown, 3 before that."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.outputs: list[int] = []

    def observe(self, request: Request) -> None:
        """See a completion."""
        self.seen.append(request.index)
        self.outputs.append(request.output_tokens)

    def __call__(self, request: Request) -> float:
        """Predict."""
        return sum(self.outputs) / len(self.outputs) if self.outputs else 3.0


def test_estimator_sees_the_completions_at_or_before_now():
    # A and B end at 20 and 10; at 20 both are seen, B first. Means: 3 (nobody), 3 / 2 = 1.5, which is
    # rounded to 2 (even); C ends at 50, at 45 it is not seen
    trace = requests((0, 8, 2), (0, 8, 1), (20, 8, 3), (45, 8, 1))
    estimator = MeanOfEnded()
    play([spec()], trace, policies={"estimator": estimator})
    assert [r.predicted_tokens for r in trace] == [3, 3, 2, 2]
    assert estimator.seen == [1, 0]


@pytest.mark.parametrize(
    ("said", "used", "is_clipped"),
    [
        (0.4, 1, 1),
        (math.nan, 1, 1),
        (-5.0, 1, 1),
        (2.5, 2, 0),
        (2**31, 2**30, 1),
        (math.inf, 2**30, 1),
    ],
)
def test_predictions_are_clipped_and_counted(said, used, is_clipped):
    trace = requests((0, 8, 1))
    cluster = play([spec()], trace, policies={"estimator": lambda request: said})
    assert trace[0].predicted_tokens == used and cluster.n_clipped_predictions == is_clipped
    assert clipped(said) == used


def test_plug_in():
    request = Request(0, 0, 8, 20, predicted_tokens=7)
    left = []
    for request.generated in (0, 6, 7, 15):
        left.append(plug_in(request))
    assert left == [7, 1, 10, 10]


def test_what_if_on_the_present():
    # One seat. A, believed to have 7 tokens, has 2 at 25 (in flight until 30): 5 more, until 70. B,
    # 20 tokens, believed 7: 70 to 140, 115 from now. A alone would end 45 from now.
    found = []

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        what_if = WhatIf(cluster)
        found.append(ms(what_if.finish_ps(request, 0)))
        found.append(what_if.marginal_latency_ps(request, 0) / PS_PER_MS)
        return 0

    trace = requests((0, 20, 9), (25, 20, 9))
    play([spec(max_num_seqs=1)], trace, dispatch)
    assert found == [70, 70, 115, 115]
    assert [r.finish_ps for r in trace] == [
        90 * PS_PER_MS,
        180 * PS_PER_MS,
    ]  # nothing was disturbed


def test_marginal_latency_counts_the_delay_of_others_by_tier():
    # vllm-v0: B's prompt in 30-40 delays A (believed: tokens 3 to 7 at 30 and 50-80 instead of
    # 40-70) by 10; B itself: tokens at 40, 50, ... 100: 75. A's tier 1 counts half.
    found = []

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        what_if = WhatIf(cluster)
        if request.index == 1:
            found.append(what_if.marginal_latency_ps(request, 0) / PS_PER_MS)
            found.append(what_if.marginal_latency_ps(request, 0, by_tier=True) / PS_PER_MS)
        return 0

    play([spec(engine="vllm-v0")], requests((0, 20, 9, 1), (25, 20, 9, 0)), dispatch)
    assert found == [85, 80]


def test_what_if_on_a_snapshot_sees_the_routers_own_placements():
    # Snapshots at 0, 20. One seat. At 21 router 0 places B (index 2), at 22 router 1 C (index 3).
    # At 25 router 0 (index 4) sees A as of 20 and B: A has 2 of 7 tokens: until 70; B until 140; the
    # candidate until 210: 185.
    found = {}

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        if request.index == 4:
            found[0] = ms(WhatIf(cluster).finish_ps(request, 0))
        if request.index == 5:
            found[1] = ms(WhatIf(cluster).finish_ps(request, 0))
        return 1 if request.index == 1 else 0

    rows = (0, 20, 9), (0, 8, 1), (21, 20, 9), (22, 30, 9), (25, 20, 9), (25, 20, 9)
    cluster = load([spec(max_num_seqs=1)] * 2, requests(*rows), dispatch, snapshot_interval_ms=20)
    cluster.routers = 2
    cluster.run()
    assert found == {0: 185, 1: 185}


def test_remaining_length_is_cut_to_what_fits():
    # 3 blocks: 20 tokens and at most 29 more; 7 are streamed by 75, 42 are not believed possible
    found = []

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        if request.index == 1:
            found.append(ms(WhatIf(cluster, lambda r: 1e9).finish_ps(request, 0)))
        return 0

    # A: 29 tokens until 290; the candidate, of 47 prompt tokens, 2 tokens: until 310
    trace = requests((0, 20, 29), (75, 47, 1))
    play([spec(kv_blocks=3)], trace, dispatch)
    assert found == [310 - 75]


def test_what_if_needs_no_options():
    assert Options().snapshot_interval_ps == 0
    assert to(3)(None, Request(0, 0, 1, 1)) == 3
