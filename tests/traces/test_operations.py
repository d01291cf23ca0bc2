"""Operations on traces: what each changes, that it keeps the rest, and that nothing is lost."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import NOT_RECORDED, Labels, PrefixBlocks, Trace

LABELS = ("category", "tenant", "model", "session")
N = 40


def full(n: int = N, source: str = "made") -> Trace:
    """A trace with every field, every request different."""
    k = np.arange(n)
    return Trace(
        0.5 * k,
        k + 100,
        k + 10,
        tier=k % 3,
        category=Labels(["chat", "code"], k % 2),
        tenant=Labels.of(f"t{r % 4}" for r in k),
        model=Labels.of(f"m{r % 5}" for r in k),
        session=Labels.of(f"s{r // 2}" for r in k),
        prefix_blocks=PrefixBlocks.of([[0, 7 * r, r][: r % 4] for r in k], 512),
        resolution_s=0.5,
        name="full",
        source=source,
    )


def rows_of(trace: Trace) -> list[tuple]:
    """Every request as a tuple of all its fields but its arrival."""
    labels = [getattr(trace, name) for name in LABELS]
    assert trace.prefix_blocks is not None
    return [
        (
            int(trace.prompt_tokens[r]),
            int(trace.output_tokens[r]),
            int(trace.tier[r]),
            *(column.names[column.codes[r]] for column in labels),
            tuple(trace.prefix_blocks.of_request(r).tolist()),
        )
        for r in range(len(trace))
    ]


def test_parts_keep_every_field_of_their_requests(tmp_path: Path):
    trace, rows = full(), rows_of(full())
    assert rows_of(trace.window(2.0, 5.0)) == rows[4:10]
    assert rows_of(trace.head(7)) == rows[:7]
    assert rows_of(trace.block(1, 4)) == rows[10:20]
    assert rows_of(trace.scale_rate(2.0).shift(3.0)) == rows
    sample = trace.sample(11, seed=1)
    assert rows_of(sample) == [rows[int(2 * t)] for t in sample.arrival_s]
    trace.save(tmp_path / "t.parquet")
    again = Trace.load(tmp_path / "t.parquet")
    assert rows_of(again) == rows
    assert (again.workload_hash, again.notes) == (trace.workload_hash, trace.notes)
    assert again.resolution_s == 0.5
    assert again.prefix_blocks is not None and again.prefix_blocks.block_tokens == 512


def test_every_field_counts_in_the_hash_but_only_where_it_is_known():
    trace = full()
    bare = Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    changed = [
        bare,
        replace(bare, model=trace.model),
        replace(bare, session=trace.model),
        replace(bare, session=trace.session),
        replace(bare, prefix_blocks=trace.prefix_blocks),
        replace(bare, prefix_blocks=PrefixBlocks.of([[]] * N, 512)),
    ]
    assert len({other.workload_hash for other in changed}) == 6
    # As first released, before there were other fields: saved manifests name it.
    plain = Trace([0.0, 1.5], [5, 6], [7, 8], [0, 1], category=Labels(["b", "a"], [1, 0]))
    assert plain.workload_hash == "03500db68ed25eb1733abcc5a7fb2f1c"


@given(st.integers(0, N), st.integers(0, 5))
def test_a_sample_is_of_distinct_requests_in_order(n: int, seed: int):
    sample = full().sample(n, seed)
    assert len(sample) == n
    assert (np.diff(sample.prompt_tokens) > 0).all()
    assert sample.workload_hash == full().sample(n, seed).workload_hash


def test_samples_differ_by_seed_and_are_refused_above_what_there_is():
    assert full().sample(20, 0).workload_hash != full().sample(20, 1).workload_hash
    for n in (-1, N + 1):
        with pytest.raises(ValueError, match=f"n = {n}; must be >= 0 and at most the 40 requests"):
            full().sample(n, 0)


def test_shift_moves_all_arrivals_and_none_below_zero():
    assert full().shift(1.25).arrival_s.tolist() == (full().arrival_s + 1.25).tolist()
    with pytest.raises(ValueError, match=r"arrival_s\[0\] = -0.5; must be >= 0"):
        full().shift(-0.5)


def test_concat_merges_by_time_and_ties_keep_the_order_of_traces():
    one, two = full(3), full(2).shift(0.5)
    joined = one.concat(two)
    assert joined.arrival_s.tolist() == [0.0, 0.5, 0.5, 1.0, 1.0]
    a, b = rows_of(one), rows_of(two)
    assert rows_of(joined) == [a[0], a[1], b[0], a[2], b[1]]
    assert joined.notes == (*one.notes, *two.notes, "joined 3 + 2 requests")
    assert (joined.name, joined.source, joined.resolution_s) == ("full", "made", 0.5)


def test_blocks_put_together_are_the_trace_again():
    trace = full()
    parts = [trace.block(k, 4).shift(5.0 * k) for k in range(4)]
    assert rows_of(parts[0].concat(*parts[1:])) == rows_of(trace)
    assert parts[0].concat(*parts[1:]).arrival_s.tolist() == trace.arrival_s.tolist()


def test_concat_fills_what_a_trace_does_not_know():
    bare = Trace([0.1], [1], [1])
    joined = full(2).concat(bare)
    assert rows_of(joined)[1] == (1, 1, 0, *[NOT_RECORDED] * 4, ())
    assert (bare.concat(bare).session, bare.concat(bare).prefix_blocks) == (None, None)


def test_concat_keeps_block_ids_of_different_sources_apart():
    joined = full(4).concat(full(4, source="other"))
    assert joined.prefix_blocks is not None
    lists = [joined.prefix_blocks.of_request(r).tolist() for r in range(8)]
    # Requests 1, 2, 3 of both have ids [0], [0, 14], [0, 21, 3]; every second is the other's.
    for one, other in zip(lists[::2], lists[1::2], strict=True):
        assert len(one) == len(other)
        assert not set(one) & set(other)
    assert lists[2][0] == lists[4][0] == lists[6][0]
    odd = Trace([0], [1], [1], prefix_blocks=PrefixBlocks.of([[1]], 16))
    with pytest.raises(ValueError, match=r"prefix blocks of \[16, 512\] tokens"):
        full(4).concat(odd)


def test_categories_are_drawn_with_their_fractions_and_move_nothing_else():
    n = 20_000
    trace = Trace(np.arange(n), np.full(n, 5), np.full(n, 5))
    drawn = trace.assign_categories({"chat": 0.6, "code": 0.4}, seed=1)
    assert drawn.category is not None and drawn.category.names == ("chat", "code")
    # The standard error is sqrt(.6 * .4 / 20,000) = .0035; five of them.
    assert np.mean(drawn.category.codes == 0) == pytest.approx(0.6, abs=0.0175)
    assert drawn.notes == ("categories chat 0.6, code 0.4",)
    tiered = trace.assign_tiers([0.5, 0.5], seed=1)
    both = drawn.assign_tiers([0.5, 0.5], seed=1)
    np.testing.assert_array_equal(both.tier, tiered.tier)
    with pytest.raises(ValueError, match="fractions = .*; must be >= 0 and sum to 1"):
        trace.assign_categories({"chat": 0.6}, seed=1)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=40).map(sorted),
    st.floats(0.01, 5.0),
    st.integers(0, 3),
)
def test_spreading_batches_keeps_order_and_never_reaches_the_next_batch(
    batches: list[int], interval_s: float, seed: int
):
    n = len(batches)
    trace = Trace(3.0 * np.array(batches), np.arange(n) + 1, np.full(n, 1))
    spread = trace.spread_batches(seed, interval_s)
    assert spread.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    delay = spread.arrival_s - trace.arrival_s
    assert (delay >= 0.0).all() and (delay <= interval_s).all()
    is_last = np.diff(batches, append=batches[-1]) > 0
    following = np.append(trace.arrival_s[1:], np.inf)
    assert (spread.arrival_s < following)[is_last].all()


def test_spreading_is_even_and_ends_the_warning():
    trace = Trace(
        np.repeat(3.0 * np.arange(500), 10), np.full(5000, 5), np.full(5000, 5), resolution_s=3.0
    )
    assert any("known only to 3 s" in warning for warning in trace.warnings)
    assert any("known only to 1.5 s" in warning for warning in trace.scale_rate(2.0).warnings)
    spread = trace.spread_batches(seed=0)
    assert (spread.resolution_s, spread.warnings) == (None, ())
    offsets = spread.arrival_s % 3.0
    # Uniform on [0, 3): the mean's standard error is 3 / sqrt(12 * 5000) = .012; five of them.
    assert offsets.mean() == pytest.approx(1.5, abs=0.06)
    assert np.mean(offsets < 0.3) == pytest.approx(0.1, abs=0.022)
    with pytest.raises(ValueError, match="interval_s = 0.0; must be finite and > 0"):
        trace.spread_batches(0, 0.0)
    with pytest.raises(ValueError, match="not on a known grid"):
        spread.spread_batches(0)


@pytest.mark.parametrize("rows", [slice(1, 4), slice(2, 2), slice(4, 2), slice(-2, None), slice(9)])
def test_slice_of_prefix_blocks_is_what_its_rows_are(rows):
    blocks = PrefixBlocks.of([[1, 2, 3], [], [1, 2, 4], [9], []], 512)
    taken, expected = blocks.take(rows), blocks.take(np.arange(5)[rows])
    assert taken.ids.tolist() == expected.ids.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()


def test_prefix_reuse_counts_leading_blocks_that_were_seen():
    # Of 3 + 3 + 2 blocks, the second prompt finds [1, 2]; the third starts with an unseen 9.
    blocks = PrefixBlocks.of([[1, 2, 3], [1, 2, 4], [9, 1]], 512)
    assert blocks.reuse_share() == pytest.approx(2 / 8)
    assert PrefixBlocks.of([[], []], 512).reuse_share() is None


@pytest.mark.parametrize(
    ("ids", "offsets", "size", "message"),
    [
        ([1, 2], [0, 1], 512, "offsets run from 0 to 1; must be 0 to 2"),
        ([1, 2], [0, 2, 1], 512, "offsets must rise"),
        ([1, 2], [1, 2], 512, "offsets run from 1 to 2"),
        ([1, 2], [], 512, "offsets must rise"),
        ([1, 2], [0, 2], 0, "block_tokens = 0; must be >= 1"),
    ],
)
def test_prefix_blocks_that_do_not_add_up_are_refused(ids, offsets, size: int, message: str):
    with pytest.raises(ValueError, match=message):
        PrefixBlocks(ids, offsets, size)
    with pytest.raises(ValueError, match="prefix_blocks has 1 rows; arrival_s has 2"):
        Trace([0, 1], [1, 1], [1, 1], prefix_blocks=PrefixBlocks([1, 2], [0, 2], 512))


def test_more_than_32768_labels_are_kept_and_hashed(tmp_path: Path):
    n = 40_000
    trace = Trace(np.arange(n), np.full(n, 5), np.full(n, 5), session=Labels.of(range(n)))
    assert trace.session is not None and trace.session.codes.dtype == np.int32
    trace.save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet").workload_hash == trace.workload_hash
