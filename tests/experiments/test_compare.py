"""compare(): common random numbers, paired differences, verdicts, notes and what is saved."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from servegym.__main__ import main
from servegym.baselines.saturation import saturation_rate
from servegym.baselines.systems import find_system, system_names
from servegym.experiments import grid
from servegym.experiments.compare import compare, find_systems
from servegym.experiments.comparison import Comparison
from servegym.experiments.grid import CellError, ConservationError, check_conservation
from servegym.experiments.metrics import EVENTS, METRICS, UNSERVED, comparison_lines, metrics_of
from servegym.experiments.statistics import Interval
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Policy
from servegym.traces import Trace, generate, workload

SYSTEMS = ["round-robin", "random", "least-requests"]


def small(systems: Sequence[str | Policy] = SYSTEMS, **options) -> Comparison:
    """Compare on 400 requests a seed and four seeds of the fitted conversations."""
    options = {"seeds": 4, "n_requests": 400, "load": 0.9, "progress": False, **options}
    return compare(systems, **options)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return small()


def row_of(comparison: Comparison, metric: str, system: str) -> Any:
    """Return one row of the table."""
    return comparison.table().set_index(["metric", "system"]).loc[(metric, system)]


def column(comparison: Comparison, name: str, system: str | None = None) -> np.ndarray:
    """Return a column of the runs, of one system or of all."""
    runs: Any = comparison.runs
    return (runs if system is None else runs[runs["system"] == system])[name].to_numpy()


def test_case_22_changing_only_the_system_keeps_the_workload_hash(comparison: Comparison):
    """Arrivals and lengths come from streams of their own, so that systems can be paired."""
    played = set(zip(column(comparison, "seed"), column(comparison, "workload_hash"), strict=True))
    assert len(comparison.runs) == 12 and len(played) == 4
    assert len({digest for _, digest in played}) == 4
    alone = small(["least-requests"])
    assert alone.workload_hashes == comparison.workload_hashes


def test_a_systems_runs_do_not_depend_on_its_company(comparison: Comparison):
    alone = small(["random"])
    for name in comparison.runs.columns:
        beside = pd.Series(column(comparison, name, "random"))
        pd.testing.assert_series_equal(pd.Series(column(alone, name)), beside, check_exact=True)


def test_table_is_means_and_paired_t_intervals_of_the_runs(comparison: Comparison):
    values = comparison.runs.pivot(index="seed", columns="system", values="e2e_mean_s")
    difference = values["random"] - values["round-robin"]
    row = row_of(comparison, "E2E mean", "random")
    assert row["mean"] == pytest.approx(values["random"].mean())
    low, high = stats.t.interval(0.95, 3, difference.mean(), stats.sem(difference))
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert row["difference_percent"] == pytest.approx(
        100 * difference.mean() / values["round-robin"].mean()
    )


def test_every_metric_has_a_row_for_every_system(comparison: Comparison):
    table = comparison.table()
    assert len(table) == 8 * len(SYSTEMS)
    assert set(table[table["system"] == "round-robin"]["verdict"]) == {"reference"}
    assert list(dict.fromkeys(table["metric"])) == [
        "E2E mean",
        "E2E P99",
        "TTFT mean",
        "TTFT P99",
        "TPOT mean",
        "SLO attainment",
        "goodput",
        "preemptions",
    ]


def test_runs_keep_the_prediction_error_of_estimators_that_tell_requests_apart(
    comparison: Comparison,
):
    names = ["prediction_mae", "prediction_rmse", "prediction_mape"]
    assert comparison.runs[names].isna().to_numpy().all()
    noisy = small(["round-robin"], estimator="noisy", estimator_params={"error": 0.1})
    mae, rmse, mape = (column(noisy, name) for name in names)
    # mean size of N(0, .1): .0798; the rounding of short outputs adds a little
    assert mape == pytest.approx(0.0798, abs=0.02) and (mae > 0).all() and (mae < rmse).all()


def test_one_system_under_two_names_shows_no_difference_at_all():
    lines = small(["power-of-two", "power-of-two:d=2"]).lines[1::2]
    assert {line.system for line in lines} == {"power-of-two:d=2"}
    assert {line.difference for line in lines} == {Interval(0.0, 0.0, 0.0, 4)}
    assert {line.verdict for line in lines} == {"no difference"}


def test_random_dispatch_is_found_worse_than_least_requests_near_the_knee():
    comparison = small(["least-requests", "random"], seeds=10, n_requests=1_000, load=0.95)
    for metric in ("E2E mean", "TTFT mean", "TTFT P99"):
        assert row_of(comparison, metric, "random")["verdict"] == "worse"


def test_the_reference_is_the_first_system_or_the_one_named(comparison: Comparison):
    other = small(reference="random")
    assert (comparison.reference, other.reference) == ("round-robin", "random")
    forth = row_of(comparison, "E2E mean", "random")["difference"]
    back = row_of(other, "E2E mean", "round-robin")["difference"]
    assert forth == pytest.approx(-back)


def test_load_sets_every_draws_own_rate_to_that_share_of_saturation(comparison: Comparison):
    saturation_per_s = saturation_rate(workload("azure-conv"), ClusterConfig())
    assert comparison.saturation_per_s == saturation_per_s
    assert column(comparison, "rate_per_s") == pytest.approx(0.9 * saturation_per_s)
    assert comparison.load == pytest.approx(0.9)


def test_load_sets_every_blocks_own_rate_to_that_share_of_the_files_saturation():
    random = np.random.default_rng(0)
    gaps = np.repeat([0.1, 2.0], 1_000) * random.exponential(size=2_000)  # a fast and a slow half
    trace = Trace(np.cumsum(gaps), random.integers(1, 500, 2_000), random.integers(1, 99, 2_000))
    comparison = compare(["random"], trace, load=0.5, seeds=2, instances=2, progress=False)
    target = 0.5 * saturation_rate(trace, ClusterConfig(instances=2))
    assert column(comparison, "rate_per_s") == pytest.approx([target, target])
    recorded = compare(["random"], trace, seeds=2, instances=2, progress=False)
    slow, fast = sorted(column(recorded, "rate_per_s"))
    assert fast > 10 * slow


def test_a_policy_object_is_a_system_too(comparison: Comparison):
    own = small([find_system("random").policy])
    expected = column(comparison, "total_latency_s", "random")
    assert (column(own, "total_latency_s") == expected).all()


def test_whole_plays_the_file_once_without_interval_or_verdict():
    trace = Trace(np.arange(300) * 0.05, np.full(300, 200), np.full(300, 50), name="even")
    comparison = compare(["round-robin", "random"], trace, whole=True, progress=False)
    row = row_of(comparison, "E2E mean", "random")
    assert column(comparison, "offered").tolist() == [300, 300]
    assert pd.isna(row["low"]) and pd.isna(row["difference_low"]) and pd.isna(row["verdict"])
    assert any(note.startswith("one run a system") for note in comparison.notes)
    assert "[95 %" not in str(comparison)


def test_a_horizon_cuts_every_run_and_keeps_the_books_balanced():
    comparison = small(["round-robin"], horizon_s=5.0)
    assert (column(comparison, "unfinished") > 0).all()
    assert any(
        "unfinished at the end" in note and "4 of 4 runs" in note for note in comparison.notes
    )


def test_case_06_a_comparison_in_which_nothing_finishes_is_valid_and_undefined(tmp_path):
    """A horizon before the first token leaves counts, no latencies, no verdicts and no crash."""
    comparison = small(["round-robin", "random"], horizon_s=1e-3)
    row = row_of(comparison, "E2E mean", "random")
    assert row["n"] == 0 and pd.isna(row["mean"]) and pd.isna(row["verdict"])
    assert column(comparison, "finished").sum() == 0
    comparison.save(tmp_path)
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False))["table"][0]["mean"] is None
    assert "E2E mean [s]" in str(comparison)


def test_notes_say_when_load_is_low_kv_never_runs_short_and_seeds_are_few(comparison: Comparison):
    low = "\n".join(small(["random"], load=0.3).notes)
    assert "load 0.3 is too low to separate policies" in low and "KV never runs short" in low
    assert "4 seeds are few" in low and "estimator 'constant'" in low
    assert not any("too low" in note for note in comparison.notes)


def test_no_kv_note_once_requests_are_preempted():
    options = {"load": 1.0, "kv_blocks": 1_500, "max_num_seqs": 128, "instances": 1}
    comparison = small(["round-robin"], **options)
    assert column(comparison, "preemptions").sum() > 0
    assert not any("KV never" in note for note in comparison.notes)


def test_a_failing_cell_names_its_system_and_seed(monkeypatch: pytest.MonkeyPatch):
    def broken(trace, config, system, *, seed, horizon_s):
        if (system.name, seed) == ("random", 2):
            raise RuntimeError("instance 3 sulks")
        return simulate(trace, config, system, seed=seed, horizon_s=horizon_s)

    simulate = grid.simulate
    monkeypatch.setattr(grid, "simulate", broken)
    with pytest.raises(CellError, match="system 'random', seed 2: RuntimeError: instance 3 sulks"):
        small()


def test_a_lost_request_is_an_error():
    balanced = {"finished": 7, "rejected": 1, "failed": 0, "cancelled": 0, "unfinished": 2}
    check_conservation({**balanced, "offered": 10}, 10)
    with pytest.raises(ConservationError, match="11 were offered, but 7 finished, 1 rejected"):
        check_conservation({**balanced, "offered": 11}, 11)
    with pytest.raises(ConservationError, match="11 requests arrived, 10 were offered"):
        check_conservation({**balanced, "offered": 10}, 11)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"systems": []}, "name at least one"),
        ({"systems": "random"}, "must be a list of names"),
        ({"systems": ["random", "random"]}, "'random' is named twice"),
        ({"systems": ["randm"]}, "did you mean 'random'"),
        ({"reference": "least-kv"}, "reference 'least-kv' is none of the systems"),
        ({"load": 0.0}, "load = 0.0; must be finite and > 0"),
        ({"load": 0.5, "rate_per_s": 1.0}, "exclude each other"),
        ({"load": None, "workload": "sharegpt"}, "recorded without times"),
        ({"whole": True}, "whole plays a trace file"),
        ({"instance": 8}, "did you mean 'instances'"),
        ({"seeds": 0}, "seeds = 0"),
    ],
)
def test_bad_arguments_say_what_is_wrong(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        small(**{"systems": SYSTEMS, **options})


def test_saved_files_hold_the_runs_the_table_and_the_manifest(comparison: Comparison, tmp_path):
    comparison.save(tmp_path / "out")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out/runs.parquet"), comparison.runs)
    assert len(pd.read_csv(tmp_path / "out/table.csv")) == len(comparison.table())
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["workload_hashes"] == comparison.workload_hashes
    assert ClusterConfig(**manifest["config"]) == comparison.config
    picture = (tmp_path / "out/comparison.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"faults": [{"kind": "slow", "instance": 1, "at_s": 0.1, "duration_s": 9, "factor": 1.5}]},
        {"tiers": 2, "timeout_s": (500.0, None), "client_retries": 1, "queue_by": "none"},
        {"instances": 2, "order": "sjf", "bypass_blocked": True, "reserve_full_prompt": False},
        {"horizon_s": 9.0, "seed": 3, "profile": ("l4/Qwen1.5-1.8B/tp1", "a10/Llama-2-7B/tp1")},
    ],
)
def test_the_manifests_command_runs_the_same_again(options: dict, capsys: pytest.CaptureFixture):
    first = small(["random", "power-of-two:d=3"], **options)
    words = shlex.split(first.command)
    assert main([*words[1:], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["manifest"]["workload_hashes"] == first.workload_hashes
    assert again["table"] == json.loads(json.dumps(first.to_dict()["table"]))


def test_the_figure_shows_every_system_and_the_differences_of_all_but_the_reference(
    comparison: Comparison,
):
    axes = comparison.plot()
    assert axes.shape == (4, 3)
    assert [label.get_text() for label in axes[0, 0].get_yticklabels()] == SYSTEMS
    assert [label.get_text() for label in axes[1, 0].get_yticklabels()] == SYSTEMS[1:]
    assert [means.get_title() for means in axes[::2].flat] == [
        "E2E mean (lower is better)",
        "TTFT mean (lower is better)",
        "TPOT mean (lower is better)",
        "E2E P99 (lower is better)",
        "TTFT P99 (lower is better)",
        "SLO attainment (higher is better)",
    ]
    assert axes[0, 2].get_xlabel() == "mean over 4 seeds [ms]"
    left, right = axes[0, 0].get_xlim()
    assert left == 0.0 and right > comparison.table()["high"].iloc[: len(SYSTEMS)].max()
    assert small(["random"]).plot().shape == (2, 3)


def test_a_long_title_is_wrapped_inside_the_figure():
    options = {"kv_blocks": 9_000, "max_num_seqs": 64, "order": "sjf", "estimator": "oracle"}
    comparison = small(["random"], metrics_interval_s=0.5, routers=2, **options)
    figure = comparison.plot()[0, 0].figure
    figure.canvas.draw()
    title = figure._suptitle
    assert title.get_text().replace("\n", " ") == comparison.title
    assert title.get_window_extent().x1 <= figure.bbox.x1
    assert title.get_window_extent().y1 <= figure.bbox.y1


def test_runs_with_other_settings_are_told_apart_in_title_and_columns():
    stale = small(["random"], metrics_interval_s=5.0, kv_blocks=9_000, instances=2)
    assert "(vllm-v1, kv_blocks=9000, metrics_interval_s=5.0) at load 0.9 =" in stale.title
    told = stale.runs[["settings", "metrics_interval_s", "routers", "order", "estimator"]]
    settings = "instances=2, kv_blocks=9000, metrics_interval_s=5.0"
    assert set(told.itertuples(index=False, name=None)) == {(settings, 5.0, 1, "fcfs", "constant")}
    assert set(small(["random"]).runs["settings"]) == {""}


def test_load_1_is_no_overload_and_stays_what_was_asked_for():
    comparison = small(["random"], load=1.0)
    assert comparison.load == comparison.manifest()["load"] == 1.0
    again = small(["random"], load=None, rate_per_s=comparison.saturation_per_s)
    assert not any("overload" in note for note in (*comparison.notes, *again.notes))


def test_rejected_requests_are_counted_in_the_table_and_said():
    comparison = small(["random", "round-robin"], kv_blocks=100)
    rejected = column(comparison, "rejected", "random")
    assert rejected.min() > 0
    assert row_of(comparison, "rejected", "random")["mean"] == pytest.approx(rejected.mean())
    share = 100 * rejected.sum() / 1_600
    assert any(note.startswith(f"{share:.0f} % of requests fit no") for note in comparison.notes)
    assert "unfinished" not in set(comparison.table()["metric"])
    cut = small(["random"], horizon_s=5.0)
    assert row_of(cut, "unfinished", "random")["mean"] > 0


def test_the_interval_of_a_mean_stays_within_what_the_metric_can_be():
    runs = pd.DataFrame({"system": "a", "seed": range(3), "slo_attainment": [1.0, 1.0, 0.9]})
    runs = runs.assign(preemptions=[0, 0, 9])
    shown = [metric for metric in METRICS if metric.key in runs.columns]
    share, count = comparison_lines(runs, "a", shown)
    assert share.mean.high == 100.0 and (share.mean.low or 0.0) < 90.0
    assert count.mean.low == 0.0 and (count.mean.high or 0.0) > 9.0
    other = runs.assign(system="b", slo_attainment=1.0)
    better = comparison_lines(pd.concat([runs, other]), "a", shown)[1].difference
    assert better is not None and better.low is not None and better.low < 0.0


def test_the_printed_table_names_systems_intervals_verdicts_and_notes(comparison: Comparison):
    text = str(comparison)
    for expected in (*SYSTEMS, "minus round-robin", "[95 % interval]", "verdict", "reference"):
        assert expected in text
    for note in comparison.notes:
        assert note.split()[0] in text
    assert "azure-conv, 4 seeds of 400 requests on 4 x a100_sxm" in text


def test_tiers_and_arrivals_can_be_drawn_for_a_workload():
    comparison = compare(
        ["random"],
        load=0.5,
        seeds=2,
        n_requests=400,
        instances=2,
        tiers=4,
        tier_mix="enterprise",
        arrivals="gamma:cv=3",
        progress=False,
    )
    shares = comparison.runs[[f"tier{p}_offered" for p in range(4)]].sum() / 800
    assert shares.to_numpy() == pytest.approx([0.1, 0.15, 0.15, 0.6], abs=0.05)
    assert "--arrivals gamma:cv=3" in (comparison.command or "")


def test_a_trace_keeps_its_own_arrivals():
    trace = generate("azure-conv", n=3000, rate_per_s=10.0, seed=0)
    with pytest.raises(ValueError, match="arrivals = 'poisson'; a trace has its own arrivals"):
        compare(["random"], trace, arrivals="poisson", seeds=2, progress=False)


def test_one_policy_at_several_settings_is_compared_in_one_call():
    names = [f"least-requests:metrics_interval_s={interval}" for interval in ("0", "5")]
    comparison = small(names, instances=8)
    seen = [column(comparison, "metrics_interval_s", name).tolist() for name in names]
    assert seen == [[0.0] * 4, [5.0] * 4]
    ttft = [column(comparison, "ttft_mean_s", name).mean() for name in names]
    assert ttft[0] < ttft[1]  # the stale one herds
    assert comparison.resolved[names[1]] == {
        "dispatch": "least-requests",
        "params": {},
        "config": {"metrics_interval_s": 5.0},
    }
    assert comparison.manifest()["resolved"][names[0]]["config"] == {}


def test_what_a_system_sets_over_the_config_is_said(comparison: Comparison):
    notes = "\n".join(small(["random", "vllm-priority"], order="sjf").notes)
    assert "vllm-priority sets order=priority itself, over the cluster's order=sjf" in notes
    assert not any("itself" in note for note in comparison.notes)


def test_estimators_are_named_with_the_systems_that_use_them():
    notes = "\n".join(small(["random", "random:estimator=oracle"]).notes)
    assert "random see output lengths predicted by estimator 'constant'" in notes
    assert (
        "random:estimator=oracle see output lengths predicted by estimator 'oracle', which knows"
        in notes
    )


def test_all_stands_for_every_system():
    assert list(find_systems(["all"])) == system_names()
    with pytest.raises(ValueError, match="'random' is named twice"):
        find_systems(["random", "all"])


def test_what_a_cluster_did_beside_serving_is_in_the_table_where_it_did_it():
    runs = pd.DataFrame({"system": ["a", "b"], "seed": 0, "moves": [3, 0], "holds": 0})
    others = {metric.key: 0 for metric in (*METRICS, *UNSERVED, *EVENTS)}
    runs = runs.assign(**{key: value for key, value in others.items() if key not in runs})
    lines = [
        line for line in comparison_lines(runs, "a", metrics_of(runs)) if line.metric.key == "moves"
    ]
    assert [line.mean.mean for line in lines] == [3.0, 0.0]
    assert lines[1].verdict is None  # a move is neither good nor bad
    assert "holds" not in {metric.key for metric in metrics_of(runs)}


def test_what_was_given_as_an_object_has_no_command_to_run_it_again():
    trace = generate("azure-conv", n=2000, rate_per_s=10.0, seed=0)
    assert compare(["random"], trace, seeds=2, progress=False).command is None
