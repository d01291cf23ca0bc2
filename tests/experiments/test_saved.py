"""Saved comparisons come back whole, and those on the same traces merge into one, still paired."""

import pytest
from pandas.testing import assert_frame_equal

from servegym.experiments.compare import compare
from servegym.experiments.saved import load_comparison, merge

SMALL = {"load": 0.9, "seeds": 3, "n_requests": 300, "instances": 2, "progress": False}


def test_a_comparison_comes_back_as_it_was_saved(tmp_path):
    comparison = compare(["round-robin", "random"], **SMALL)
    comparison.save(tmp_path)
    loaded = load_comparison(tmp_path)
    assert_frame_equal(loaded.table(), comparison.table())
    assert loaded.title == comparison.title
    assert loaded.manifest() == comparison.manifest()


def test_systems_run_apart_merge_into_what_they_are_when_run_together():
    apart = merge([compare(["round-robin"], **SMALL), compare(["random"], **SMALL)])
    together = compare(["round-robin", "random"], **SMALL)
    assert_frame_equal(apart.table(), together.table())


def test_a_system_run_twice_counts_once():
    twice = merge([compare(["random"], **SMALL), compare(["random", "round-robin"], **SMALL)])
    assert twice.systems == ["random", "round-robin"]
    assert len(twice.runs) == 2 * 3


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"instances": 3}, "config"), ({"load": 0.8}, "workload_hashes"), ({"seeds": 4}, "seeds")],
)
def test_comparisons_on_other_traces_or_clusters_are_refused(changed, named):
    with pytest.raises(ValueError, match=f"comparisons differ in {named}"):
        merge([compare(["random"], **SMALL), compare(["random"], **SMALL | changed)])


def test_an_unknown_reference_and_an_empty_list_are_named():
    with pytest.raises(ValueError, match="reference = 'nobody'; must be one of random"):
        merge([compare(["random"], **SMALL)], reference="nobody")
    with pytest.raises(ValueError, match=r"comparisons = \[\]"):
        merge([])


def test_a_folder_that_is_no_comparison_is_named(tmp_path):
    with pytest.raises(ValueError, match="is no saved comparison"):
        load_comparison(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match="is no manifest of a comparison|is no saved comparison"):
        load_comparison(tmp_path)
