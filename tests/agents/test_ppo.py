"""Tests of PPO and MaskablePPO as commands: seeds, selection, checkpoint, resume."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="the extra rl is not installed")

import torch
from safetensors.numpy import load_file

from servegym.agents import maskable_ppo, ppo, selection
from servegym.agents.export import read_network, tensors_of_network, write_network
from servegym.agents.scenarios import HELD_OUT_SEEDS, TRAINING_SEEDS, Mix
from servegym.agents.set_policy import SHARPNESS, UNITS, SetNetwork
from servegym.agents.units import NAMES
from servegym.baselines.learned import read_checkpoint
from servegym.commands import train

FEW: dict[str, Any] = dict(
    steps=128,
    validate_every=64,
    instances=(2, 3),
    workloads=("azure-conv",),
    requests=60,
    loads_each=1,
    replicas=2,
    rollout=16,
    batch=32,
    epochs=1,
    hidden=4,
    learning_rate=0.05,
    horizon_s=0.1,
)


@pytest.fixture(autouse=True)
def small_cases(monkeypatch):
    """Let validation cases be short."""
    monkeypatch.setattr(Mix, "__init__", _few_requests(Mix.__init__))


def _few_requests(init):
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        object.__setattr__(self, "requests", 100)

    return made


def tensors(path) -> dict[str, np.ndarray]:
    return dict(read_checkpoint(path).tensors)


def test_same_seed_trains_the_same_network_and_another_seed_another(tmp_path):
    options = ppo.Options(out=tmp_path / "a", **FEW)
    ppo.train(options, "")
    ppo.train(replace(options, out=tmp_path / "b"), "")
    ppo.train(replace(options, out=tmp_path / "c", seed=1), "")
    a, b, c = (tensors(tmp_path / name) for name in "abc")
    for name, tensor in a.items():
        np.testing.assert_array_equal(tensor, b[name])
    assert (a["encoder.weight"] != c["encoder.weight"]).any()


def test_tensorboard_has_the_curves_of_validation_and_training(tmp_path, monkeypatch):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="the extra rl is not installed",
    )
    seen = []
    played = selection.Validation.score
    monkeypatch.setattr(
        selection.Validation, "score", lambda *args: seen.append(played(*args)) or seen[-1]
    )
    options = ppo.Options(out=tmp_path / "mine", tensorboard=tmp_path / "curves", **FEW)
    ppo.train(options, "")
    (folder,) = (tmp_path / "curves").iterdir()
    assert folder.name.startswith("mine")
    curves = reader.EventAccumulator(str(folder)).Reload()
    assert {"validation/score", "validation/best", "train/loss"} <= set(curves.Tags()["scalars"])
    scores, best = (curves.Scalars(f"validation/{name}") for name in ("score", "best"))
    assert [point.step for point in scores] == [0, 64, 128]
    # After three validations the best is scored once more, for the card.
    np.testing.assert_allclose([point.value for point in scores], seen[:3], rtol=1e-6)
    np.testing.assert_allclose(
        [point.value for point in best], np.minimum.accumulate(seen[:3]), rtol=1e-6
    )


def test_training_and_validation_play_the_scenarios_asked_for():
    options = ppo.Options(scenarios=("default", "no-paging"), **FEW)
    sizes = [group.vector.options.config.block_size for group in options.env().envs]
    assert sizes == [16, 2048] * 2  # of each fleet
    cases = options.mix().validation_cases()
    assert {case.scenario for case in cases} == {"default", "no-paging"}


def test_card_says_how_it_was_trained_and_what_it_does(tmp_path, capsys):
    arguments = []
    for name, value in FEW.items():
        values = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{name.replace('_', '-')}", *map(str, values)]
    out = tmp_path / "mine"
    assert train.run(["dispatch", "--algo", "maskable-ppo", "--out", str(out), *arguments]) == 0
    card = json.loads((tmp_path / "mine.json").read_text())
    assert card["algorithm"] == "maskable-ppo" and card["seed"] == 0
    assert card["command"].startswith("servegym train dispatch --algo maskable-ppo --out")
    assert card["trained_on"]["instances"] == [2, 3]
    assert {row["instances"] for row in card["evaluation"]["cases"]} == {2, 3, 6}
    assert card["hidden"] == 4 and card["wall_s"] > 0
    assert capsys.readouterr().out.strip() == f"{out}.safetensors"


def test_validation_plays_no_seed_of_training_or_of_studies():
    cases = selection.Validation(Mix((2,), ("azure-conv",), ("predicted",)), "mean-e2e").cases
    seeds = {case.seed for case in cases}
    assert not seeds & set(HELD_OUT_SEEDS)
    assert all(seed not in TRAINING_SEEDS for seed in seeds)


def test_the_start_is_kept_where_training_makes_it_worse(tmp_path, monkeypatch):
    start = SetNetwork(4)
    write_network(start, tmp_path / "start", {})
    scores = iter([-0.5, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    monkeypatch.setattr(selection.Validation, "score", lambda self, costs: next(scores))
    ppo.train(ppo.Options(out=tmp_path / "out", start=str(tmp_path / "start"), **FEW), "")
    for name, tensor in tensors_of_network(start).items():
        np.testing.assert_allclose(tensors(tmp_path / "out")[name], tensor, rtol=1e-6)


def test_the_best_of_all_validations_is_kept(tmp_path, monkeypatch):
    scores = iter([0.5, -0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    seen = watch_validations(monkeypatch)
    monkeypatch.setattr(selection.Validation, "score", lambda self, costs: next(scores))
    ppo.train(ppo.Options(out=tmp_path / "out", **FEW), "")
    assert len(seen) == 4  # before, after 64 and 128 decisions, and for the card
    np.testing.assert_array_equal(tensors(tmp_path / "out")["skip.weight"], seen[1]["skip.weight"])
    assert (seen[1]["skip.weight"] != seen[0]["skip.weight"]).any()


def watch_validations(monkeypatch) -> list[dict[str, np.ndarray]]:
    """Return a list to which every validation adds the tensors that it plays."""
    seen, costs = [], selection.Validation.costs

    def watched(self, tensors):
        seen.append(tensors)
        return costs(self, tensors)

    monkeypatch.setattr(selection.Validation, "costs", watched)
    return seen


@pytest.mark.parametrize("steps, expected", [(128, [1.0, 0.5]), (65, [1.0, 1 / 65])])
def test_learning_rate_is_of_the_decisions_left_when_a_rollout_begins(steps, expected):
    # 64 decisions a rollout. SB3 asks when it has ended, the second of 65 at 1 - 128 / 65.
    options = ppo.Options(**FEW | {"steps": steps})
    schedule = ppo.make_model(options, ppo.PLAIN, options.env()).lr_schedule
    rates = [schedule(1 - done / steps) / options.learning_rate for done in (64, 128)]
    np.testing.assert_allclose(rates, expected)


def test_training_from_scratch_begins_with_a_score_that_knows_what_busy_is(tmp_path, monkeypatch):
    seen = watch_validations(monkeypatch)
    for prior in (0.0, 0.3):
        ppo.train(ppo.Options(out=tmp_path / "out", **FEW | {"steps": 1, "prior": prior}), "")
    weights = [each["skip.weight"][0] for each in (seen[0], seen[len(seen) // 2])]
    assert not weights[0].any()
    busy = [NAMES.index(name) for name in ("running", "prefill_tokens", "tokens_left")]
    np.testing.assert_allclose((weights[1] * UNITS / SHARPNESS)[busy], 0.3 * 0.35, rtol=1e-6)


def test_logits_are_sharpened_after_each_rollout_but_before_none(tmp_path, monkeypatch):
    seen = watch_validations(monkeypatch)
    for factor in (1.0, 3.0):
        few = FEW | {"steps": 65, "sharpen": factor}
        ppo.train(ppo.Options(out=tmp_path / "out", **few), "")
    before, plain, _, _, same, sharper, _, _ = seen
    for name, tensor in before.items():
        np.testing.assert_array_equal(same[name], tensor)
    for name in ("skip.weight", "out.weight", "out.bias"):
        np.testing.assert_allclose(sharper[name], 3 * plain[name], rtol=1e-6)
    np.testing.assert_array_equal(sharper["head.weight"], plain["head.weight"])


@pytest.mark.parametrize(
    ("undo", "score", "is_undone"),
    [(True, 0.4, True), (True, 0.1, False), (False, 0.4, False)],  # a tie is not worse
)
def test_what_made_validation_worse_is_undone(undo, score, is_undone, tmp_path, monkeypatch):
    scores = iter([0.5, 0.1, score])
    monkeypatch.setattr(selection.Validation, "score", lambda self, costs: next(scores))
    run = ppo.Run(ppo.Options(out=tmp_path / "out", undo=undo, **FEW), ppo.PLAIN, "")
    run.model.learn(0)  # no decision: loggers and callbacks are set up
    run.selection.init_callback(run.model)
    run.selection.validate()
    run.selection.validate()
    best = run.model.policy.actor.skip.weight.detach().clone()
    with torch.no_grad():
        run.model.policy.actor.skip.weight.add_(1.0)
    run.selection.validate()
    after = run.model.policy.actor.skip.weight
    torch.testing.assert_close(after, best if is_undone else best + 1.0)


@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_learned_only_where_it_is_wanted(network, tmp_path, monkeypatch):
    seen = watch_validations(monkeypatch)
    few = FEW | {"network": network, "sharpen": 1.0}
    ppo.train(ppo.Options(out=tmp_path / "out", **few), "")
    assert (seen[0]["skip.weight"] != seen[1]["skip.weight"]).any()
    assert (seen[0]["out.weight"] != seen[1]["out.weight"]).any() == network


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    options = ppo.Options(out=tmp_path / "out", **FEW)
    validate, n = selection.Selection.validate, []

    def interrupted(self):
        validate(self)
        n.append(self.num_timesteps)
        if len(n) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(selection.Selection, "validate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ppo.train(options, "")
    with pytest.raises(ValueError, match=r"--resume: seed = 1; .* was begun with 0"):
        ppo.train(replace(options, resume=True, seed=1), "")
    with pytest.raises(ValueError, match="out.state.json is of a training that has not finished"):
        ppo.train(options, "")
    other = maskable_ppo.Options(out=options.out, resume=True, **FEW)
    with pytest.raises(ValueError, match="algorithm = 'maskable-ppo'; .* was begun with 'ppo'"):
        maskable_ppo.train(other, "")
    ppo.train(replace(options, resume=True), "")
    assert n == [0, 64, 128]
    assert read_network(tmp_path / "out").hidden == 4
    names = {path.name.removeprefix("out.") for path in tmp_path.iterdir()}
    state = {"state.json", "state.128.zip", "state.128.safetensors"}
    assert names == state | {"safetensors", "json"}
    with pytest.raises(ValueError, match="--resume: there is no"):
        ppo.train(replace(options, resume=True, out=tmp_path / "other"), "")


def test_an_end_between_the_files_of_a_state_leaves_the_one_before(tmp_path, monkeypatch):
    options = ppo.Options(out=tmp_path / "out", **FEW)
    write, networks = ppo.write_kept, []

    def killed_before(out, kept):
        if kept["done"] == 64:  # its other files are written
            raise KeyboardInterrupt
        write(out, kept)

    with monkeypatch.context() as patch:
        patch.setattr(ppo, "write_kept", killed_before)
        patch.setattr(ppo, "remove_others", lambda *_: networks.append(run_network(tmp_path)))
        with pytest.raises(KeyboardInterrupt):
            ppo.train(options, "")
    assert (tmp_path / "out.state.64.zip").is_file()
    run = ppo.Run(replace(options, resume=True), ppo.PLAIN, "")
    assert run.model.num_timesteps == 0
    (before,) = networks
    for name, tensor in tensors_of_network(run.model.policy.actor).items():
        np.testing.assert_array_equal(tensor, before[name])


def run_network(folder) -> dict[str, np.ndarray]:
    """Return the tensors of the best network that is kept."""
    (file,) = folder.glob("out.state.*.safetensors")
    return load_file(file)


def test_a_state_without_one_of_its_files_is_refused(tmp_path):
    ppo.train(ppo.Options(out=tmp_path / "out", **FEW), "")
    (tmp_path / "out.state.128.zip").unlink()
    with pytest.raises(ValueError, match=r"there is no .*out\.state\.128\.zip, which belongs to"):
        ppo.train(ppo.Options(out=tmp_path / "out", resume=True, **FEW), "")


def test_steps_are_whole_rollouts_and_are_told(tmp_path, capsys):
    card = ppo.train(replace(ppo.Options(**FEW), out=tmp_path / "out", steps=65), "")
    said = "steps = 65: 128 decisions are played, in whole rollouts of 64"
    assert capsys.readouterr().err.count(said) == 1
    assert (card["trained_on"]["steps"], card["trained_on"]["decisions"]) == (65, 128)
    ppo.train(ppo.Options(out=tmp_path / "whole", **FEW), "")
    assert "whole rollouts" not in capsys.readouterr().err


def test_an_objective_without_a_reward_of_its_own_is_told(tmp_path, capsys):
    for objective, count in (("p99-e2e", 1), ("mean-e2e", 0)):
        options = ppo.Options(out=tmp_path / objective, objective=objective, **FEW)
        ppo.train(options, "")
        assert capsys.readouterr().err.count("rewards are those of mean-e2e") == count


def test_a_run_begun_with_a_network_of_another_width_goes_on(tmp_path):
    write_network(SetNetwork(6), tmp_path / "start", {})
    options = {"out": tmp_path / "out", "start": str(tmp_path / "start"), **FEW}  # hidden: 4
    ppo.train(ppo.Options(**options), "")
    ppo.train(ppo.Options(**options, resume=True), "")
    assert read_network(tmp_path / "out").hidden == 6


def test_a_validation_run_that_fails_is_none_in_the_card(tmp_path, monkeypatch):
    def fail(self, tensors):
        return np.full(len(self.cases), np.nan)

    monkeypatch.setattr(selection.Validation, "costs", fail)
    card = ppo.train(ppo.Options(out=tmp_path / "out", **FEW), "")
    assert card["evaluation"]["score"] is None
    assert all(row["learned"] is None for row in card["evaluation"]["cases"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"steps": 0}, "steps = 0; must be >= 1"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0; must be > 0"),
        ({"learning_rate": float("inf")}, "learning_rate = inf; must be > 0 and finite"),
        ({"entropy": float("nan")}, "entropy = nan; must be >= 0 and finite"),
        ({"prior": -0.1}, "prior = -0.1; must be >= 0 and finite"),
        ({"sharpen": 0.0}, "sharpen = 0.0; must be > 0 and finite"),
        ({"replicas": 0}, "replicas = 0; must be >= 1"),
        ({"hidden": 2000}, "hidden = 2000; must be in 1 .. 1024"),
        ({"gae_lambda": 1.5}, r"gae_lambda = 1.5; must be in \[0, 1\]"),
        ({"objective": "mean-e2"}, "unknown objective 'mean-e2'"),
        ({"start": "no-such"}, "checkpoint = 'no-such'; there is no file"),
        (
            {"horizon_s": 20.0},
            "rollout = 16; must be >= [0-9]+, the decisions that the busiest fleet",
        ),
    ],
)
def test_bad_options_are_named(option, message):
    with pytest.raises(ValueError, match=message):
        ppo.train(ppo.Options(**FEW | option), "")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"options": 3}', '{"options": {}, "engine": ""}']
)
def test_state_that_is_none_is_refused(text: str, tmp_path):
    (tmp_path / "out.state.json").write_text(text)
    with pytest.raises(ValueError, match=r"--resume: .*out\.state\.json is no state of a training"):
        ppo.train(ppo.Options(out=tmp_path / "out", resume=True, **FEW), "")


def test_run_with_a_start_of_another_width_goes_on(tmp_path):
    write_network(SetNetwork(8), tmp_path / "start", {})
    options = ppo.Options(out=tmp_path / "out", start=str(tmp_path / "start"), **FEW)
    ppo.train(replace(options), "")
    ppo.train(replace(options, resume=True), "")
    assert read_network(tmp_path / "out").hidden == 8
    assert not list(tmp_path.glob("*.part"))


def test_numbers_that_json_has_not_become_none():
    assert [selection.as_json(x) for x in (1.5, float("nan"), float("inf"))] == [1.5, None, None]


def test_maskable_options_are_ppos_but_for_where_it_goes():
    plain, maskable = ppo.Options(), maskable_ppo.Options()
    assert maskable.identity() == plain.identity() and maskable.out != plain.out
