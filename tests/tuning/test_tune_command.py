"""`servegym tune`: files, JSON, exit codes, one-line errors, and a best.yaml that `compare` plays."""

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from learned_examples import written
from tuning_problems import COMMAND, N_REQUESTS, SYSTEM, problem

from servegym.__main__ import main
from servegym.baselines.simulate import simulate
from servegym.baselines.system_file import portable, tiers_of
from servegym.baselines.systems import find_system
from servegym.commands.tune import stem_of
from servegym.envs.options import check_options
from servegym.experiments.compare import compare
from servegym.traces import generate, workload
from servegym.tuning.player import Player
from servegym.tuning.spaces import TIERS
from servegym.tuning.studies import STUDIES


def tune(folder: Path, *more: str) -> int:
    return main(["tune", *COMMAND, "--out", str(folder), *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `servegym tune` has filled, 22 trials."""
    folder = tmp_path_factory.mktemp("tune") / "out"
    assert tune(folder, "--trials", "22") == 0
    return folder


def test_report_table_and_pictures_are_written(finished: Path):
    report = json.loads((finished / "report.json").read_text())
    assert report["trials"] | {"faults": {}} == {
        "done": 22,
        "complete": 22,
        "pruned": 0,
        "failed": 0,
        "lost": 0,
        "faults": {},
    }
    table = pd.read_csv(finished / "trials.csv")
    assert table["number"].tolist() == list(range(22))
    best = table.loc[table["value"].idxmin()]
    assert report["best"]["trial"] == best["number"]
    seeds = table[["seed_0", "seed_1", "seed_2"]].to_numpy()
    assert np.allclose(seeds.mean(axis=1), table["value"])
    held_out = report["held_out"]
    mean = np.mean(np.array(held_out["best"]) - np.array(held_out["default"]))
    assert held_out["difference"]["mean"] == pytest.approx(mean)
    assert sum(report["importances"].values()) == pytest.approx(1.0)
    for name in ("history", "importances", "slices", "pair"):
        assert (finished / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_best_file_is_a_system_that_compare_plays_with_the_reported_values(finished: Path):
    best = str(finished / "best.yaml")
    report = json.loads((finished / "report.json").read_text())
    params = report["best"]["params"]
    system = find_system(best)
    assert system.name == best and system.params["peak"] == params["peak"]
    assert system.params["form"] == {"exponential": 0, "linear": 1}[params["form"]]
    assert find_system(f"{best}:peak=.5").params["peak"] == 0.5

    asked = problem()
    comparison = compare(
        [SYSTEM, best],
        workload=asked.workload,
        load=asked.load,
        tier_mix=asked.tier_mix,
        n_requests=N_REQUESTS,
        seeds=2,
        seed=3,
        progress=False,
        **{k: v for k, v in asked.cluster.items() if k in ("instances", "kv_blocks", "profile")},
        max_num_seqs=64,
        tiers=3,
    )
    runs = comparison.runs.set_index(["system", "seed"])["e2e_mean_s"]
    assert runs[best].tolist() == pytest.approx(report["held_out"]["best"])
    assert runs[SYSTEM].tolist() == pytest.approx(report["held_out"]["default"])


def test_command_in_the_best_file_compares_with_the_default(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    comment = (finished / "best.yaml").read_text().splitlines()[1]
    words = comment.removeprefix("# servegym ").split()
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    report = json.loads((finished / "report.json").read_text())
    told = next(
        line
        for line in document["table"]
        if line["metric"] == "E2E mean" and line["system"] == str(finished / "best.yaml")
    )
    assert told["difference"] == pytest.approx(report["held_out"]["difference"]["mean"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: {peak: .1}", "names no system"),
        ("system: n-tier\nsetings: {peak: .1}", "unknown key 'setings'; did you mean 'settings'"),
        ("system: n-tier\nsettings: {peek: .1}", "unknown parameter 'peek'; did you mean 'peak'"),
        ("system: n-tier\nsettings: [peak]", "must be a mapping"),
        ("system: n-tier\nformat: 2", "format = 2; must be 1"),
        ("system: n-tier\ncluster: 4", "cluster = 4; must be a mapping"),
        ("system: n-tier\ncluster: {tiers: 0}", r"cluster\.tiers = 0; must be whole, >= 1"),
        ("system: n-tier\ncluster: {instances: 4}", r"unknown key cluster\.instances"),
        ("system: !!python/object/apply:os.getcwd []", "is no YAML"),
        ("a: b: c", "is no YAML"),
    ],
)
def test_bad_system_files_are_told_by_name(text: str, message: str, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        find_system(str(path))
    with pytest.raises(ValueError, match=r"system file none\.yaml: No such file"):
        find_system("none.yaml")


def test_file_that_names_itself_is_told(tmp_path: Path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(f"system: {second}")
    second.write_text(f"system: {first}\nsettings: {{peak: .1}}")
    with pytest.raises(
        ValueError, match=r"system file .*\.yaml names itself, or one that names it"
    ):
        find_system(str(first))


def test_null_in_a_file_is_nobody(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("system: n-tier\nsettings: {migration: null}")
    assert find_system(str(path)).settings["migration"] is None


def test_folder_of_another_study_is_refused_before_anything_is_played(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    """By another system, and by another space; the same study goes on, and leaves no picture of an older report."""
    before = {path: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    words = ["--requests", "200", "--seeds", "1", "--held-out", "0", "--trials", "1"]
    other = ["system", "power-of-two", "--param", "d=1:8", *words, "--out", str(finished)]
    assert main(["tune", *other]) == 2
    complaint = capsys.readouterr().err
    assert f"study n-tier, system {SYSTEM}, " in complaint and "space d=1:8" in complaint
    assert "name another --out" in complaint
    assert tune(finished, "--trials", "1", "--param", "decay=0:10") == 2
    assert "decay=0:10" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in finished.iterdir() if path.is_file()}


@pytest.fixture
def for_four_tiers(tmp_path: Path) -> str:
    path = tmp_path / "four.yaml"
    path.write_text("system: n-tier\nsettings: {peak: .1}\ncluster: {tiers: 4}")
    return str(path)


def test_file_for_other_tiers_than_the_clusters_is_an_error_wherever_it_is_played(
    for_four_tiers: str, capsys: pytest.CaptureFixture[str]
):
    told = r"tiers = 1; the system of .*four\.yaml was found with 4"
    trace = generate("zipf-64-512", 50, 20.0, 0)
    with pytest.raises(ValueError, match=told):
        simulate(trace, system=for_four_tiers)
    with pytest.raises(ValueError, match=told):
        simulate(trace, system=find_system(f"{for_four_tiers}:peak=.2"))
    with pytest.raises(ValueError, match=told):
        compare(["n-tier", for_four_tiers], workload="zipf-64-512", load=0.5)
    with pytest.raises(ValueError, match=told):
        check_options("dispatch", {"system": for_four_tiers})
    assert main(["tune", "system", for_four_tiers, "--param", "peak=0:.5"]) == 2
    assert "give --tiers 4" in capsys.readouterr().err
    words = ["--tiers", "4", "--param", "tiers=1:4"]
    assert main(["tune", "system", for_four_tiers, *words]) == 2
    assert "sets cluster.tiers; leave one of them out" in capsys.readouterr().err
    assert simulate(trace, system=for_four_tiers, tiers=4).summary()["finished"] == 50


def test_system_whose_file_is_gone_plays_on(for_four_tiers: str):
    system = find_system(for_four_tiers)
    Path(for_four_tiers).unlink()
    trace = generate("zipf-64-512", 50, 20.0, 0)
    assert simulate(trace, system=system).summary()["finished"] == 50


def test_portable_text_names_what_files_and_checkpoints_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path, "linear")
    monkeypatch.chdir(tmp_path)
    Path("inner.yaml").write_text(
        "system: learned:linear-0\nsettings: {order: sjf}\ncluster: {tiers: 3}"
    )
    Path("outer.yaml").write_text("system: inner.yaml\nsettings: {estimator: oracle}")
    lies = f"learned:{tmp_path / 'linear-0.safetensors'}"
    assert portable("outer.yaml:order=fcfs") == f"{lies},estimator=oracle,order=fcfs"
    assert tiers_of("outer.yaml:order=fcfs") == 3  # of the file that it names
    assert portable("n-tier:dispatch=learned:linear-0") == f"n-tier:dispatch={lies}"
    assert portable("learned:serve-goodput") == "learned:serve-goodput"  # ships: found anywhere
    assert portable("power-of-two:d=3") == "power-of-two:d=3"
    assert tiers_of("n-tier") is None


def test_best_file_of_a_nested_file_stands_alone_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    written(tmp_path, "linear")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    text = "system: learned:linear-0\nsettings: {estimator: oracle}\ncluster: {tiers: 2}"
    Path("mine.yaml").write_text(text)
    words = ["--requests", "200", "--seeds", "1", "--held-out", "2", "--trials", "1"]
    words += ["--param", "order=fcfs,sjf", "--instances", "2", "--load", ".9", "--tiers", "2"]
    assert main(["tune", "system", "mine.yaml", *words, "--tier-mix", "uniform"]) == 0
    best = tmp_path / "out" / "tune" / "mine" / "best.yaml"
    report = json.loads(best.with_name("report.json").read_text())
    heading = best.read_text().splitlines()[1].removeprefix("# servegym ")

    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("../mine.yaml").unlink()
    assert tiers_of(str(best)) == 2
    assert find_system(str(best)).dispatch == f"learned:{tmp_path / 'linear-0.safetensors'}"
    capsys.readouterr()
    assert main([*shlex.split(heading), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    told = next(r for r in table if r["metric"] == "E2E mean" and r["system"] == str(best))
    assert told["difference"] == pytest.approx(report["held_out"]["difference"]["mean"])


def test_best_file_of_a_trace_says_that_compare_plays_the_blocks_of_the_search(tmp_path: Path):
    path = tmp_path / "trace.parquet"
    generate("zipf-64-512", 3_000, 20.0, 0).save(path)
    words = ["--param", "d=1:8", "--trials", "1", "--seeds", "2", "--held-out", "1"]
    words += ["--instances", "2", "--trace", str(path), "--out", str(tmp_path / "out")]
    assert main(["tune", "system", "power-of-two", *words]) == 0
    comment = (tmp_path / "out" / "best.yaml").read_text().splitlines()[:3]
    assert f"--trace {path} --seed 0 --seeds 3" in comment[1]
    assert comment[2] == (
        "# It plays all 3 blocks of the file, also the 2 that the search chose on, which flatter; "
        "held_out below is of the other 1."
    )


def test_workloads_of_one_file_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = workload("azure-conv").to_json()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "headroom", "--workloads", "a/mine.json,b/mine.json"]) == 2
    assert "would share a folder" in capsys.readouterr().err


@pytest.mark.parametrize("extra", ["optuna", "scipy"])
def test_missing_extra_is_one_line_that_names_it(
    extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, extra, None)
    assert main(["tune", "headroom"]) == 1
    error = capsys.readouterr().err
    assert "pip install 'servegym[tune]'" in error and error.count("\n") == 1


def test_study_of_a_file_is_called_after_it_and_its_best_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert stem_of("power-of-two:d=3") == "power-of-two"
    assert stem_of("out/tuned.yaml:peak=.1") == "tuned"
    assert stem_of("learned:out/run.v1.safetensors,order=sjf") == "learned-run.v1"
    learned = written(tmp_path, "linear")
    monkeypatch.chdir(tmp_path)
    words = ["--requests", "200", "--seeds", "1", "--held-out", "0", "--trials", "1"]
    words += ["--param", "order=fcfs,sjf", "--instances", "2", "--load", ".9"]
    assert main(["tune", "system", f"{learned},estimator=oracle", *words]) == 0
    best = find_system("out/tune/learned-linear-0/best.yaml")
    assert best.dispatch == learned
    assert best.settings == {
        "estimator": "oracle",
        "order": "fcfs",
    }  # the first trial is the default


def test_case_31_all_trials_failing_says_how_many_and_why_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Nothing finishes before the horizon, so the mean is undefined in every trial."""
    assert tune(tmp_path, "--horizon-s", "1e-9", "--trials", "50", "--max-failures", "4") == 1
    out, err = capsys.readouterr()
    assert "0 done" in out and "4 failed" in out
    assert "4 x ValueError: mean-e2e is nan at seed 0" in out
    assert "nothing to report" in out
    logged = [line for line in err.splitlines() if line.startswith("trial ")]
    assert len(logged) == 4 and all("'peak': " in line and "nan" in line for line in logged)
    table = pd.read_csv(tmp_path / "trials.csv")
    assert table["state"].tolist() == ["FAIL"] * 4
    assert not np.isnan(table["peak"].to_numpy(dtype=np.float64)).any()
    assert not (tmp_path / "best.yaml").exists()


def test_json_report_is_all_of_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert tune(tmp_path, "--trials", "2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trials"]["done"] == 2 and document["best"]["system"].startswith(SYSTEM)
    assert document == json.loads((tmp_path / "report.json").read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("headrom", "unknown study 'headrom'; did you mean 'headroom'"),
        ("system", "system needs a name"),
        ("system n-tier", "nothing to search"),
        ("system n-teer --param peak=0:1", "unknown system 'n-teer'; did you mean 'n-tier'"),
        ("headroom n-tier", "headroom tunes n-tier; for another: tune system n-tier"),
        ("headroom --param peek=0:1", "did you mean 'peak'"),
        ("headroom --param peak=0:2", "must be in [0, 1]"),
        ("headroom --objective goodputt", "did you mean 'goodput'"),
        ("headroom --objective goodput --param tiers=1:4", "does not compare numbers of tiers"),
        ("headroom --sampler tpee", "did you mean 'tpe'"),
        ("headroom --prune-p 1.5", "must be >= 0 and < 1"),
        ("headroom --trials 0", "--trials 0; must be >= 1"),
        ("headroom --seeds 0", "--seeds 0; must be >= 1"),
        ("headroom --workers 0", "--workers 0; must be >= 1"),
        ("headroom --load 1 --rate 3", "exclude each other"),
        ("headroom --workload azur-conv", "did you mean 'azure-conv'"),
        ("headroom --workloads azure-conv,nope", "workload = 'nope'"),
        ("headroom --workloads azure-conv,azure-conv", "'azure-conv' is named twice"),
        ("ema --workloads drift-none,drift-nine", "workload = 'drift-nine'"),
        ("headroom --trial 3", "did you mean --trials"),
    ],
)
def test_mistakes_are_one_line_on_stderr_and_leave_no_study(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "out"
    assert main(["tune", *words.split(), "--out", str(folder)]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint.splitlines()[-1]
    assert not folder.exists()


def test_tiers_that_are_given_are_not_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [
        "--tiers",
        "3",
        "--requests",
        "300",
        "--seeds",
        "1",
        "--held-out",
        "1",
        "--trials",
        "1",
    ]
    assert main(["tune", "headroom", "--out", str(tmp_path), "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    searched = [text.partition("=")[0] for text in document["space"]]
    named = [text.partition("=")[0] for text in STUDIES["headroom"].params]
    assert TIERS in named and searched == [key for key in named if key != TIERS]


def test_study_of_several_workloads_keeps_one_each_and_sums_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--requests", "700", "--seeds", "2", "--held-out", "2", "--trials", "2"]
    drifts = ["--workloads", "drift-none,drift-sudden"]
    assert main(["tune", "ema", "--out", str(tmp_path), *words, *drifts]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["drift-none", "drift-sudden"]
    assert (tmp_path / "drift-none" / "best.yaml").exists()
    assert (tmp_path / "drift-sudden" / "journal.log").exists()


def test_trace_file_is_cut_into_blocks_for_tuning_and_for_judging(tmp_path: Path):
    trace = generate("zipf-64-512", 5_000, 20.0, 0)
    path = tmp_path / "trace.parquet"
    trace.save(path)
    asked = problem(trace=str(path), seeds=3, held_out=2, load=None)
    tuning, judging = Player(asked), Player(asked, asked.held_out_seeds)
    played = [tuning.trace(s, 1) for s in asked.tuning_seeds]
    played += [judging.trace(s, 1) for s in asked.held_out_seeds]
    assert sum(map(len, played)) == 5_000  # five blocks that share no request
    lengths = np.sort(np.concatenate([each.prompt_tokens for each in played]))
    assert (lengths == np.sort(trace.prompt_tokens)).all()
