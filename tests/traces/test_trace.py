"""Trace: what it refuses, what its methods change, and what they leave alone."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import Labels, Trace

NAN, INF = float("nan"), float("inf")


def made(n: int = 10, gap_s: float = 0.5) -> Trace:
    """A trace of n requests, one every gap_s, starting at 1 s, all lengths different."""
    return Trace(
        1.0 + gap_s * np.arange(n),
        np.arange(n) + 100,
        np.arange(n) + 10,
        tier=np.arange(n) % 3,
        category=Labels(["chat", "code"], np.arange(n) % 2),
        tenant=Labels.of(f"t{r % 4}" for r in range(n)),
        name="made",
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any valid small trace."""
    gaps = draw(st.lists(st.floats(0.0, 1e3), max_size=30))
    n = len(gaps)
    tokens = st.lists(st.integers(1, 2**31 - 1), min_size=n, max_size=n)
    tiers = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    return Trace(np.cumsum(gaps), draw(tokens), draw(tokens), draw(tiers))


def test_columns_have_their_types_and_tier_defaults_to_zero():
    trace = Trace([0, 1], [5, 6], [7, 8])
    assert [a.dtype for a in (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)] == [
        np.float64,
        np.int32,
        np.int32,
    ]
    assert trace.tier.dtype == np.int16
    assert trace.tier.tolist() == [0, 0]
    assert len(trace) == 2


def test_trace_cannot_be_changed_from_inside_or_outside():
    arrival_s = np.array([0.0, 1.0])
    trace = Trace(arrival_s, [5, 6], [7, 8])
    arrival_s[0] = 0.5
    assert trace.arrival_s[0] == 0.0
    for array in (trace.arrival_s, trace.prompt_tokens, trace.output_tokens, trace.tier):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        trace.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_are_equal_and_still_read_only(clone):
    other = clone(made())
    assert other.workload_hash == made().workload_hash
    assert not other.arrival_s.flags.writeable
    assert not other.tenant.codes.flags.writeable


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1], [5, 0], [7, 8]), r"prompt_tokens\[1\] = 0; must be >= 1"),
        (([0, 1], [5, 6], [7, 0]), r"output_tokens\[1\] = 0; must be >= 1"),
        (([0, 1], [5, 6], [7, -2]), r"output_tokens\[1\] = -2; must be >= 1"),
        (([0, 1], [5, 2.5], [7, 8]), r"prompt_tokens\[1\] = 2.5; must be a whole number"),
        (([0, 1], [5, NAN], [7, 8]), r"prompt_tokens\[1\] = nan; must be a finite number"),
        (
            ([0, 1], [5, 2**31], [7, 8]),
            r"prompt_tokens\[1\] = 2147483648; must be <= 2,147,483,647",
        ),
        (([0, 1], ["5", "x"], [7, 8]), r"prompt_tokens\[1\] = 'x'; must be a number"),
        (([0, 1], [5, None], [7, 8]), r"prompt_tokens\[1\] is missing"),
        (([[0, 1]], [5, 6], [7, 8]), r"arrival_s has shape \(1, 2\); must be one-dimensional"),
        (([0, 1], [5, 6], [7]), "output_tokens has 1 rows; arrival_s has 2"),
        (([0, 1], [5, 6], [7, 8], [0, -1]), r"tier\[1\] = -1; must be >= 0"),
    ],
)
def test_bad_columns_are_refused_by_field_value_and_index(columns, message: str):
    with pytest.raises(ValueError, match=message):
        Trace(*columns)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([1, 2], "timedelta64[ms]"), r"timedelta64\[ms\]; must be numbers"),
        (np.array([1, 2], "datetime64[s]"), r"datetime64\[s\]; must be numbers"),
        (np.array([True, True]), "type bool; must be numbers"),
        (np.array([1 + 2j, 3]), "type complex128; must be numbers"),
        ([1, True], r"\[1\] = True; must be a number, not bool"),
        ([1, 2j], r"\[1\] = 2j; must be a number, not complex"),
        ([1, [2]], r"\[1\] = \[2\]; must be a number, not list"),
        (np.array([1, np.timedelta64(2, "ms")], object), r"\[1\] = .*; must .* not timedelta64"),
        (np.ma.array([1, 2], mask=[False, True]), r"\[1\] is missing"),
        ([1, 10**400], r"\[1\] = 10{76}\.\.\.; must be a number that a float can hold"),
        ([1, 10**5000], r"\[1\] = an integer too long to print; must be a number that"),
    ],
)
def test_types_that_numpy_would_convert_silently_are_refused(values, message: str):
    """Milliseconds were read as seconds, truth values as 1, masked values as what is under them."""
    for place, field in enumerate(("arrival_s", "prompt_tokens", "output_tokens", "tier")):
        columns: list[Any] = [[1, 2], [5, 6], [7, 8], [0, 1]]
        columns[place] = values
        arrival_s, prompt_tokens, output_tokens, tier = columns
        with pytest.raises(ValueError, match=f"^{field}.*{message}"):
            Trace(arrival_s, prompt_tokens, output_tokens, tier)


def test_a_masked_array_that_hides_nothing_is_an_array():
    assert Trace(np.ma.array([0.0, 1.0]), [5, 6], [7, 8]).arrival_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("arrival_s", "message"),
    [
        ([0, -1.5], r"arrival_s\[1\] = -1.5; must be >= 0"),
        ([0, NAN], r"arrival_s\[1\] = nan; must be a finite number"),
        ([0, INF], r"arrival_s\[1\] = inf; must be a finite number"),
        ([3.0, 2.0], r"arrival_s\[1\] = 2; must not be before the arrival above it"),
    ],
)
def test_case_13_bad_arrivals_are_refused(arrival_s: list, message: str):
    """Unsorted, negative or missing times silently reorder or lose requests elsewhere."""
    with pytest.raises(ValueError, match=message):
        Trace(arrival_s, [5, 6], [7, 8])


def test_arrivals_above_106_days_are_refused_with_the_reason():
    limit_s = 106 * 86_400.0
    Trace([limit_s], [1], [1])
    with pytest.raises(ValueError, match="106 days.*int64 picoseconds"):
        Trace([limit_s + 1.0], [1], [1])


def test_case_06_empty_and_single_traces_are_valid():
    """Nothing offered, or one request, must give counts and None, not an exception."""
    empty, single = Trace([], [], []), Trace([2.0], [3], [4])
    assert (len(empty), empty.span_s, empty.mean_rate_per_s) == (0, 0.0, None)
    assert (len(single), single.span_s, single.mean_rate_per_s) == (1, 0.0, None)
    assert empty.rates() == "0 requests"
    assert "rate undefined" in single.rates()
    for trace in (empty, single):
        assert len(trace.scale_rate(2.0).head(5).window(0.0, 9.0)) == len(trace)
        assert len(trace.assign_tiers([0.5, 0.5], seed=0).to_frame()) == len(trace)


def test_mean_rate_is_gaps_over_span():
    # 10 requests, 9 gaps of 0.5 s: 2 per second.
    assert made(10, 0.5).mean_rate_per_s == 2.0
    assert Trace([3.0, 3.0], [1, 1], [1, 1]).mean_rate_per_s is None


def test_hash_depends_on_the_requests_and_not_on_their_description():
    trace = made()
    assert trace.workload_hash == made().workload_hash
    renamed = Trace.from_frame(trace.to_frame(), name="other", source="elsewhere")
    assert renamed.workload_hash == trace.workload_hash
    others = [
        trace.scale_rate(2.0),
        trace.head(9),
        trace.assign_tiers([1.0], seed=0),
        Trace(trace.arrival_s, trace.output_tokens, trace.prompt_tokens, trace.tier),
        Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, trace.tier),
    ]
    assert len({trace.workload_hash, *(other.workload_hash for other in others)}) == 6


@given(traces(), st.floats(0.01, 100.0))
def test_case_15_scaling_divides_gaps_and_changes_nothing_else(trace: Trace, factor: float):
    """Rate scaling that also moved lengths or the start would compare different workloads."""
    scaled = trace.scale_rate(factor)
    # A gap is a difference of two roundings, each within half an ulp of the later time.
    slack = 4.0 * np.spacing(
        max(trace.arrival_s.max(initial=1.0), scaled.arrival_s.max(initial=1.0))
    )
    gaps, scaled_gaps = np.diff(trace.arrival_s), np.diff(scaled.arrival_s)
    np.testing.assert_allclose(
        scaled_gaps, gaps / factor, rtol=1e-12, atol=slack * (1 + 1 / factor)
    )
    np.testing.assert_array_equal(scaled.arrival_s[:1], trace.arrival_s[:1])
    for field in ("prompt_tokens", "output_tokens", "tier"):
        np.testing.assert_array_equal(getattr(scaled, field), getattr(trace, field))


def test_scaling_by_one_is_the_same_trace_and_by_two_is_exact():
    trace = made()
    assert trace.scale_rate(1.0).workload_hash == trace.workload_hash
    assert trace.scale_rate(2.0).arrival_s.tolist() == (1.0 + 0.25 * np.arange(10)).tolist()


@pytest.mark.parametrize("factor", [0.0, -1.0, NAN, INF])
def test_scaling_refuses_factors_that_are_no_rate(factor: float):
    with pytest.raises(ValueError, match="factor = .*; must be finite and > 0"):
        made().scale_rate(factor)


@given(traces(), st.data())
def test_blocks_are_contiguous_disjoint_and_start_at_zero(trace: Trace, data: st.DataObject):
    if not len(trace):
        return
    n_blocks = data.draw(st.integers(1, len(trace)))
    blocks = [trace.block(k, n_blocks) for k in range(n_blocks)]
    sizes = [len(block) for block in blocks]
    assert sum(sizes) == len(trace)
    assert max(sizes) - min(sizes) <= 1
    assert all(block.arrival_s[0] == 0.0 for block in blocks)
    joined = np.concatenate([block.prompt_tokens for block in blocks])
    np.testing.assert_array_equal(joined, trace.prompt_tokens)


@pytest.mark.parametrize(("k", "n_blocks"), [(-1, 2), (2, 2), (0, 0), (0, 11)])
def test_blocks_that_do_not_exist_are_refused(k: int, n_blocks: int):
    with pytest.raises(ValueError, match=f"k = {k}, n_blocks = {n_blocks}; must be"):
        made(10).block(k, n_blocks)


def test_window_is_half_open_and_counts_from_its_start():
    # Arrivals at 1.0, 1.5, ..., 5.5; [2, 4) holds 2.0, 2.5, 3.0, 3.5.
    window = made(10).window(2.0, 4.0)
    assert window.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert window.prompt_tokens.tolist() == [102, 103, 104, 105]
    assert len(made(10).window(end_s=4.0)) == 6
    with pytest.raises(ValueError, match="window"):
        made(10).window(4.0, 2.0)
    with pytest.raises(ValueError, match="window"):
        made(10).window(NAN)


def test_head_keeps_the_first_requests_and_their_labels():
    head = made(10).head(3)
    assert head.arrival_s.tolist() == [1.0, 1.5, 2.0]
    assert head.category is not None and head.category.codes.tolist() == [0, 1, 0]
    assert len(made(10).head(99)) == 10
    with pytest.raises(ValueError, match="n = -1"):
        made(10).head(-1)


def test_every_change_leaves_a_note():
    trace = (
        made().scale_rate(2.0).assign_tiers([0.5, 0.5], seed=0).window(1.0, 9.0).head(4).block(0, 2)
    )
    assert trace.notes == (
        "rate times 2",
        "tiers [0.5, 0.5]",
        "window [1, 9) s",
        "first 4 requests",
        "block 0 of 2",
    )


def test_tiers_are_drawn_with_their_fractions_and_only_by_the_seed():
    trace = made(20_000, 0.001)
    tiers = trace.assign_tiers([0.2, 0.0, 0.8], seed=3).tier
    # Binomial sd is sqrt(.2 * .8 / 20,000) = 0.0028; five of them.
    assert abs(np.mean(tiers == 0) - 0.2) < 0.015
    assert not np.any(tiers == 1)
    np.testing.assert_array_equal(tiers, trace.assign_tiers([0.2, 0.0, 0.8], seed=3).tier)
    assert np.any(tiers != trace.assign_tiers([0.2, 0.0, 0.8], seed=4).tier)


@pytest.mark.parametrize("fractions", [[], [0.5, 0.4], [1.5, -0.5], [NAN, 1.0]])
def test_fractions_that_are_no_distribution_are_refused(fractions: list[float]):
    with pytest.raises(ValueError, match="fractions = .*; must be >= 0 and sum to 1"):
        made().assign_tiers(fractions, seed=0)


def test_frame_round_trip_keeps_every_column():
    trace = made()
    frame = trace.to_frame()
    assert list(frame.columns) == [
        "arrival_s", "prompt_tokens", "output_tokens", "tier", "category", "tenant",
    ]  # fmt: skip
    again = Trace.from_frame(frame, name="made")
    assert again.workload_hash == trace.workload_hash
    assert again.tenant is not None and again.tenant.names == ("t0", "t1", "t2", "t3")


def test_frame_must_be_sorted_or_asked_to_be():
    frame = made().to_frame().iloc[::-1]
    with pytest.raises(ValueError, match="must not be before the arrival above it"):
        Trace.from_frame(frame)
    trace = Trace.from_frame(frame, sort=True)
    assert trace.workload_hash == made().workload_hash
    assert trace.notes == ("sorted by arrival",)


def test_frame_names_all_missing_columns():
    with pytest.raises(ValueError, match=r"missing: \['prompt_tokens', 'output_tokens'\]"):
        Trace.from_frame(made().to_frame().drop(columns=["prompt_tokens", "output_tokens"]))


def test_labels_refuse_repeated_names_and_codes_out_of_range():
    with pytest.raises(ValueError, match="must be distinct"):
        Labels(["a", "a"], [0, 1])
    with pytest.raises(ValueError, match=r"label codes\[1\] = 2; must be <= 1"):
        Labels(["a", "b"], [0, 2])
    assert Labels.of(["b", "a", "b"]).names == ("a", "b")
    assert Labels.of(["b", "a", "b"]).codes.tolist() == [1, 0, 1]


def test_repr_tells_the_name_and_the_rates():
    assert repr(made()) == (
        "<Trace made: 10 requests over 4.5 s, 2 req/s, mean prompt 104.5, mean output 14.5 tokens>"
    )


def test_replaced_fields_are_checked_and_the_rest_is_shared():
    trace = made()
    twin = trace.replaced(output_tokens=np.arange(10) + 1, notes=("shorter",))
    assert twin.output_tokens.tolist() == list(range(1, 11))
    assert twin.output_tokens.dtype == np.int32 and not twin.output_tokens.flags.writeable
    assert twin.arrival_s is trace.arrival_s and twin.notes == ("shorter",)
    assert twin.workload_hash != trace.workload_hash  # though that was known
    assert trace.output_tokens[0] == 10
    with pytest.raises(ValueError, match=r"output_tokens\[2\] = 0; must be >= 1"):
        trace.replaced(output_tokens=[1, 1, 0])
    with pytest.raises(ValueError, match="tier has 9 rows; arrival_s has 10"):
        trace.replaced(tier=np.zeros(9))
    with pytest.raises(ValueError, match="prompt_tokens has 10 rows; arrival_s has 3"):
        trace.replaced(arrival_s=[0.0, 1.0, 2.0])
    with pytest.raises(TypeError, match="tiers; no field of a trace"):
        trace.replaced(tiers=np.zeros(10))
