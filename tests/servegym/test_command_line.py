"""The command line: help, one-line errors, exit codes, JSON on stdout and nothing beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from servegym.__main__ import main
from servegym.commands import arguments, compare
from servegym.commands.cluster_options import ClusterOptions, given_options
from servegym.envs.registration import env_ids
from servegym.experiments import grid, progress
from servegym.experiments.grid import ConservationError
from servegym.simulator.config import SCENARIOS, ClusterConfig, Fault
from servegym.simulator.policy import SIGNATURES, policy_names
from servegym.simulator.profiles import profiles
from servegym.traces import generate, workload_names
from servegym.traces.arrivals import PROCESSES
from servegym.traces.tier_mixes import mix_names

QUICK = ["--requests", "300", "--seeds", "3", "--load", "0.9"]
Capture = pytest.CaptureFixture[str]


def fails_with(capsys: Capture, code: int, *words: str) -> str:
    """Return the one line on stderr of a command that must fail with that exit code."""
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    return err


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A saved trace of 3,000 requests."""
    path = tmp_path / "trace.parquet"
    generate("azure-conv", 3_000, 20.0, seed=5).save(path)
    return path


def test_help_is_quick_because_it_loads_no_compiler_and_no_pandas():
    program = (
        "import sys; from servegym.__main__ import main; code = main(['--help']);"
        "sys.exit(code or any(name in sys.modules for name in ('numba', 'pandas', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "servegym compare --trace" in done.stdout


@pytest.mark.parametrize("command", ["compare", "simulate", "bench", "list"])
def test_every_command_explains_itself_with_examples(command: str, capsys: Capture):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"examples:\n  servegym {command} " in text
    assert "None" not in text and "default:" not in text


def test_no_arguments_print_the_help(capsys: Capture):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: servegym COMMAND")


MISTAKES = {
    "comapre": "servegym: unknown command 'comapre'; did you mean 'compare'?",
    "compare": "servegym compare: --systems is missing",
    "compare --sytems random": "unrecognized options: --sytems, random; did you mean --systems?",
    "compare --systems": "missing value for argument '--systems'",
    "compare --systems rond-robin": "unknown system 'rond-robin'; did you mean 'round-robin'?",
    "compare --systems power-of-two:e=3": "power-of-two: unknown parameter 'e'",
    "compare --systems random --instances four": "--instances: 'four' is not a whole number",
    "compare --systems random --instances 0": "instances = 0; input should be greater",
    "compare --systems random --engine vlm": "engine = 'vlm'; input should be 'vllm-v1'",
    "compare --systems random --load x": "--load: 'x' is not a number",
    "compare --systems random --load -1": "load = -1.0; must be finite and > 0",
    "compare --systems random --load 1 --rate 2": "load and rate exclude each other",
    "compare --systems random --trace /no/t.csv": "No such file or directory: /no/t.csv",
    "compare --systems random --trace /": "Is a directory: /",
    "compare --systems random --start-s 3": "--start-s needs --trace",
    "compare --systems random --scenario tigt": "unknown scenario 'tigt'; did you mean 'tight'?",
    "compare --systems random --order sfj": "did you mean 'sjf'?",
    "compare --systems random --workload azure": "did you mean 'azure-conv'?",
    "compare --systems random --loads .6,x": "--loads: 'x' is not a number",
    "compare --systems random --loads .6 --load 1": "--loads names all loads; leave --load",
    "compare --systems random --workloads all --workload sharegpt": "--workloads names all workloads",
    "compare --systems random --workloads azure": "did you mean 'azure-conv'?",
    "compare --systems random --check --rate 3": "--check plays short runs at --loads; leave --rate out",
    "compare --systems random --check --loads 0": "load = 0.0; must be finite and > 0",
    "compare --systems random --faults crash:0:60": "'crash:0:60' is not kind:instance:at:duration",
    "compare --systems random --faults crash:9:60:1": "faults.0.instance = 9; there are 0 .. 3",
    "compare --systems random --timeout-s x": "'x' is not a number",
    "compare --systems random --queue-by user": "queue_by = 'user'; input should be 'none', 'tier'",
    "compare --systems random:order=sfj": "unknown ordering policy 'sfj'; did you mean 'sjf'?",
    "compare --systems random --whole": "whole plays a trace file once",
    "compare --systems random --whole --seeds 3": "--whole plays the file once",
    "compare --systems random --reserve-full-prompt 2": "'2' is neither true nor false",
    "simulate --system randm": "servegym simulate: unknown system 'randm'",
    "simulate --system=": "unknown system ''; known:",
    "simulate --order fcsf": "did you mean 'fcfs'?",
    "simulate --scaling freeness --scaling-params low=3,high=1": "low = 3.0; must be <= high = 1.0",
    "simulate --workload sharegpt": "recorded without times; give --load or --rate",
    "simulate --load 1 --rate 2": "--load and --rate exclude each other",
    "list": "servegym list: missing",
    "list sytems": "did you mean 'systems'?",
    "bench sped": "did you mean 'speed'?",
    "bench speed --data /no/where": "--data /no/where is no folder",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_users_mistake_is_one_line_on_stderr_and_exit_code_2(words: str, capsys: Capture):
    assert MISTAKES[words] in fails_with(capsys, 2, *words.split())


def test_a_bad_row_of_a_file_is_named(tmp_path: Path, capsys: Capture):
    path = tmp_path / "bad.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,0,5\n")
    err = fails_with(capsys, 2, "simulate", "--trace", str(path))
    assert "prompt_tokens[1] = 0; must be >= 1 (row 3 of bad.csv)" in err


def test_too_short_a_trace_names_whole_and_seeds(trace_file: Path, capsys: Capture):
    assert main(["compare", "--systems", "random", "--trace", str(trace_file)]) == 2
    err = capsys.readouterr().err
    assert "300 for each of 10 seeds" in err and "--seeds 3" in err and "--whole" in err


def test_an_interrupt_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "run", interrupted)
    assert fails_with(capsys, 130, "compare") == "servegym compare: interrupted\n"


def test_a_failed_run_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: Capture):
    def failing(words: list[str]) -> int:
        raise RuntimeError("system 'x', seed 3:\n  no progress")

    monkeypatch.setattr(compare, "run", failing)
    assert fails_with(capsys, 1, "compare") == "servegym compare: system 'x', seed 3: no progress\n"


def test_json_is_the_only_thing_on_stdout(tmp_path: Path, capsys: Capture):
    out = tmp_path / "out"
    words = ["compare", "--systems", "random,least-requests", *QUICK, "--json", "--out", str(out)]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reference"] == "random"
    assert {row["system"] for row in document["table"]} == {"random", "least-requests"}
    assert document["manifest"]["command"].startswith("servegym compare --systems random,least")
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.png",
        "manifest.json",
        "runs.parquet",
        "table.csv",
    ]


def test_a_comparison_of_a_trace_file_says_what_was_read(trace_file: Path, capsys: Capture):
    words = ["--systems", "random,round-robin", "--trace", str(trace_file), "--seeds", "2"]
    assert main(["compare", *words, "--end-s", "120"]) == 0
    out, err = capsys.readouterr()
    assert "2,415 rows read" in err and "outside the window" in err
    assert "trace, 2 seeds of" not in err and "verdict" in out


def test_simulate_prints_and_saves_one_run(trace_file: Path, tmp_path: Path, capsys: Capture):
    words = [
        "simulate",
        "--trace",
        str(trace_file),
        "--system",
        "power-of-two:d=3",
        "--load",
        "0.8",
    ]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("power-of-two:d=3: 3,000 offered, 3,000 finished\n")
    assert len(pd.read_parquet(tmp_path / "run/requests.parquet")) == 3_000
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 3_000


def test_simulate_shows_what_the_cluster_did_beside_serving_where_it_did(capsys: Capture):
    words = ["simulate", "--requests", "300", "--load", "0.9", "--system"]
    assert main([*words, "n-tier"]) == 0
    moved = [line.split() for line in capsys.readouterr().out.splitlines() if line[:5] == "moves"]
    assert int(moved[0][1]) > 0
    assert main([*words, "n-tier:migration=none"]) == 0
    assert "moves" not in capsys.readouterr().out


def test_simulate_draws_the_workload_at_the_rate_asked_for(capsys: Capture):
    for extra in (["--rate", "7.5"], ["--rate", "7.5", "--seed", "3"]):
        assert main(["simulate", "--requests", "2000", "--json", *extra]) == 0
        assert json.loads(capsys.readouterr().out)["rate_per_s"] == pytest.approx(7.5, rel=0.1)


def test_simulate_says_when_a_load_or_a_rate_is_an_overload(capsys: Capture):
    quick = ["simulate", "--requests", "300"]
    for asked, is_overload in (("--load 1", False), ("--load 1.5", True), ("--rate 500", True)):
        assert main([*quick, *asked.split()]) == 0
        assert ("is an overload" in capsys.readouterr().out) is is_overload
    assert main([*quick, "--load", "2", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert warnings[-1].startswith("load 2 is an overload")


def test_options_reach_the_cluster(capsys: Capture):
    words = (
        "--instances 3 --engine sarathi --max-num-batched-tokens 512 --order sjf --bypass-blocked"
    )
    words += " --reserve-full-prompt false --profile h100_sxm/Llama-3.1-8B/tp1,l4/Qwen1.5-1.8B/tp1"
    words += " --metrics-interval-s 0.5 --routers 2 --tiers 2 --estimator oracle"
    words += " --remaining-params outlived_tokens=20 --snapshot-interval-s 1 --queue-by tenant"
    words += " --max-local-waiting 3 --hold-timer-s 0.2 --max-hold-s 30 --rebalance-interval-s 2"
    words += (
        " --migration-stages 3 --last-stage-blocks 16 --link-gb-per-s 25 --scaling-interval-s 3"
    )
    words += " --startup-delay-s 9 --min-instances 2 --max-instances 5 --on-failure fail"
    words += " --faults slow:1:5:60:1.5,crash:0:1e5:2 --timeout-s 500,none --client-retries 2"
    words += " --retry-backoff-s 4 --reject-penalty-s 7 --block-size 32"
    assert main(["simulate", "--requests", "200", "--load", "0.5", "--json", *words.split()]) == 0
    config = ClusterConfig(**json.loads(capsys.readouterr().out)["config"])
    assert config == ClusterConfig(
        instances=3,
        engine="sarathi",
        max_num_batched_tokens=512,
        order="sjf",
        bypass_blocked=True,
        reserve_full_prompt=False,
        profile=("h100_sxm/Llama-3.1-8B/tp1", "l4/Qwen1.5-1.8B/tp1"),
        metrics_interval_s=0.5,
        routers=2,
        tiers=2,
        estimator="oracle",
        remaining_params={"outlived_tokens": 20},
        snapshot_interval_s=1,
        queue_by="tenant",
        max_local_waiting=3,
        hold_timer_s=0.2,
        max_hold_s=30,
        rebalance_interval_s=2,
        migration_stages=3,
        last_stage_blocks=16,
        link_gb_per_s=25,
        scaling_interval_s=3,
        startup_delay_s=9,
        min_instances=2,
        max_instances=5,
        on_failure="fail",
        faults=(
            Fault(kind="slow", instance=1, at_s=5, duration_s=60, factor=1.5),
            Fault(kind="crash", instance=0, at_s=1e5, duration_s=2),
        ),
        timeout_s=(500, None),
        client_retries=2,
        retry_backoff_s=4,
        reject_penalty_s=7,
        block_size=32,
    )


def test_a_policy_of_none_is_nobody_as_behind_a_systems_colon():
    parts = ("admission", "queue", "migration", "scaling")
    words = [word for part in parts for word in (f"--{part}", "none")]
    config = arguments.parse(ClusterOptions, words, "simulate", "").to_config()
    assert config == ClusterConfig() and config.migration is None
    with pytest.raises(ValueError, match="unknown ordering policy 'none'; known: fcfs"):
        ClusterOptions(order="none").to_config()


def test_a_limit_is_one_for_all_tiers_or_one_a_tier():
    assert arguments.limits("30") == 30 and arguments.limits("none") == (None,)
    assert arguments.limits("10,60,none") == (10, 60, None)


def test_a_scenario_sets_what_is_not_given():
    assert ClusterOptions(scenario="tight").to_config() == ClusterConfig(**SCENARIOS["tight"])
    assert ClusterOptions(scenario="tight", kv_blocks=9).to_config().kv_blocks == 9


def test_cluster_options_are_those_of_the_config_and_state_its_defaults(capsys: Capture):
    assert set(given_options(ClusterOptions())) == set(ClusterConfig.model_fields)
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    text = capsys.readouterr().out.partition("cluster options")[2].replace("│", " ")
    text = " ".join(text.split())
    for name, field in ClusterConfig.model_fields.items():
        about = text.split(f"--{name.replace('_', '-')} ")[1].split(" --")[0]
        if field.default not in (None, {}, ()):
            assert f"({field.default})" in about, name


def test_list_names_what_there_is(capsys: Capture):
    for what, expected in {
        "systems": ["round-robin", "power-of-two", "vllm-priority"],
        "policies": list(SIGNATURES),
        "envs": env_ids(),
        "orders": ["fcfs", "priority", "sjf"],
        "estimators": ["constant", "oracle"],
        "profiles": list(profiles()),
        "scenarios": list(SCENARIOS),
        "workloads": workload_names(),
        "arrivals": ["fitted", *PROCESSES],
        "tier-mixes": mix_names(),
    }.items():
        assert main(["list", what]) == 0
        lines = capsys.readouterr().out.splitlines()
        named = [line.split()[0] for line in lines if not line.startswith(" ")]
        assert set(expected) <= set(named) and len(named) == len(set(named))


def test_lists_say_how_parameters_are_given(capsys: Capture):
    for what, expected in {
        "systems": "dispatch=least-requests, order=priority",
        "policies": "power-of-two Return the sampled instance with the fewest requests, waiting or running. "
        "[d=2, whole, 1 to 64 instances] {Mitzenmacher 2001, on requests}",
        "estimators": "constant  Predict the same output tokens for every request. "
        "[tokens=<from the trace>, 1 to 1,073,741,824 tokens]",
        "scenarios": "tight      kv_blocks=6,000, max_num_seqs=128",
        "envs": "by default Discrete(4); sees cluster (5,), instances (76,), queues (8,), request (6,); "
        "reward latency",
        "arrivals": "on-off         Poisson bursts of mean length on_s, with silences of mean length off_s between "
        "them. [on_s=X] [off_s=X]",
        "tier-mixes": "gaussian         30/70 %   15/70/15 %   5/20/50/20/5 %",
    }.items():
        assert main(["list", what]) == 0
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        assert " ".join(expected.split()) in lines


def test_lists_are_also_json(capsys: Capture):
    assert main(["list", "systems", "--json"]) == 0
    systems = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    [d] = systems["power-of-two"]["params"]["dispatch"]
    assert (d["name"], d["default"], d["low"], d["high"], d["unit"]) == ("d", 2, 1, 64, "instances")
    assert systems["vllm-priority"]["parts"] == {"dispatch": "least-requests", "order": "priority"}
    assert all(each["source"] and each["summary"] for each in systems.values())
    assert main(["list", "policies", "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)
    named = {
        kind: {each["name"] for each in policies if each["kind"] == kind} for kind in SIGNATURES
    }
    assert named == {kind: set(policy_names(kind)) for kind in SIGNATURES}
    assert main(["list", "scenarios", "--json"]) == 0
    assert {each["name"] for each in json.loads(capsys.readouterr().out)} == set(SCENARIOS)
    assert main(["list", "envs", "--json"]) == 0
    envs = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(envs) == env_ids() and all(each["step"] for each in envs.values())
    admission = envs["servegym/Admission-v0"]
    assert (admission["action_space"], admission["reward"]) == ("Discrete(3)", "slo")
    assert admission["observation_shape"]["queues"] == [8]  # one tier, eight columns


def test_a_grid_is_one_comparison_for_each_workload_and_load(tmp_path: Path, capsys: Capture):
    words = "compare --systems random,least-requests --workloads sharegpt,azure-conv --loads .6,.9"
    words += f" --requests 200 --seeds 2 --out {tmp_path}"
    assert main([*words.split(), "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    played = [(each["manifest"]["workload"], each["manifest"]["load"]) for each in documents]
    assert played == [(w, load) for w in ("sharegpt", "azure-conv") for load in (0.6, 0.9)]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{w}_load_{load}" for w, load in played}
    assert (
        main(
            ["compare", "--systems", "random", "--loads", ".9", "--requests", "200", "--seeds", "2"]
        )
        == 0
    )
    assert "at load 0.9 =" in capsys.readouterr().out


CHECK = [
    "compare",
    "--check",
    "--systems",
    "random,vllm-priority",
    "--workloads",
    "sharegpt,zipf-64-512",
]


def test_a_check_tries_every_system_on_every_workload_at_every_load(capsys: Capture):
    assert main([*CHECK, "--requests", "100", "--loads", ".6,1.15"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        [workload, "load", load]
        for workload in ("sharegpt", "zipf-64-512")
        for load in ("0.6", "1.15")
    ]
    assert all(line.endswith(" 2 runs        200 requests  ok") for line in lines[:4])
    assert lines[-1] == "8 runs of 800 requests: all conserved"
    assert main([*CHECK, "--requests", "100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == 16 and document["failures"] == []
    assert document["systems"]["random"]["finished"] == 800
    assert {group["load"] for group in document["groups"]} == {0.6, 0.85, 1.0, 1.15}


def test_a_check_that_fails_goes_on_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    def lossy(summary, n_arrived):
        if summary["system"] == "random":
            raise ConservationError("one was lost")

    monkeypatch.setattr(grid, "check_conservation", lossy)
    assert main([*CHECK, "--requests", "100", "--loads", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = "system 'random', seed 0: ConservationError: one was lost"
    assert lines[0].endswith(f"1 FAILED: sharegpt, load 1, {told}")
    assert lines[-2:] == [f"zipf-64-512, load 1, {told}", "2 of 4 runs FAILED"]
    assert main([*CHECK, "--requests", "100", "--loads", "1", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert len(document["failures"]) == 2
    assert document["systems"]["vllm-priority"]["finished"] == 200


def test_names_are_split_at_commas_that_do_not_belong_to_parameters():
    split = arguments.names("random, power-of-two:d=3,least-kv:a=1,b=2,x")
    assert split == ["random", "power-of-two:d=3", "least-kv:a=1,b=2", "x"]
    split = arguments.names(
        "n-tier:migration=none,peak=.3,block:estimator=noisy,estimator.error=.5,x"
    )
    assert split == [
        "n-tier:migration=none,peak=.3",
        "block:estimator=noisy,estimator.error=.5",
        "x",
    ]
    assert arguments.settings("a=1,b=2.5") == {"a": 1.0, "b": 2.5}
    with pytest.raises(ValueError, match="is not name=number"):
        arguments.settings("a")


def test_compilation_is_announced_only_on_an_empty_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
):
    monkeypatch.setattr(progress, "IS_JIT_DISABLED", False)
    monkeypatch.setenv("SERVEGYM_CACHE_DIR", str(tmp_path))
    progress.announce_compilation()
    assert "compiling the simulator" in capsys.readouterr().err
    of_another_installation = tmp_path / progress.SIMULATOR_HASH / "simulator_1"
    for compiled, is_silent in ((of_another_installation, False), (progress.engine_cache(), True)):
        compiled.mkdir(parents=True)
        (compiled / "event_loop.run.nbi").write_bytes(b"")
        progress.announce_compilation()
        assert (capsys.readouterr().err == "") is is_silent
