"""Checkpoints: written and read again, and what each thing that is wrong with one says."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from learned_examples import LINEAR, SET_MLP, F, random_tensors, written

from servegym.baselines.features import INSTANCE_FEATURES
from servegym.baselines.learned import (
    ARCHITECTURES,
    Checkpoint,
    checkpoint,
    feature_names,
    linear_policy,
    read_checkpoint,
    set_network_policy,
    shipped_names,
    write_checkpoint,
)
from servegym.baselines.learned.layouts import LAYOUTS
from servegym.simulator.policy import find_policy


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """The file of a linear checkpoint that is as it should be."""
    return write_checkpoint(tmp_path / "mine", {"weight": np.ones(3 * F, np.float32)}, LINEAR)


def edit_card(path: Path, **changes) -> None:
    """Change fields of a card; None takes one out."""
    card = json.loads(path.with_suffix(".json").read_text()) | changes
    left = {name: value for name, value in card.items() if value is not None}
    path.with_suffix(".json").write_text(json.dumps(left))


def test_what_was_written_is_read_again(tmp_path):
    tensors = random_tensors(5)
    tensors["head.weight"] = np.asfortranarray(tensors["head.weight"])
    said = {**SET_MLP, "hidden": 5, "seed": 3, "evaluation": {"mean_e2e_s": [1.5, None]}}
    path = write_checkpoint(tmp_path / "new" / "mine", tensors, said)
    assert path == tmp_path / "new" / "mine.safetensors"
    for name in (path, path.with_suffix(""), str(path)):
        found = read_checkpoint(name)
        assert {name: found.card[name] for name in said} == said
        assert found.card["format"] == 1 and found.card["servegym"]
        assert found.card["features"] == feature_names()
        assert found.tensors.keys() == tensors.keys()
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(found.tensors[name], tensor)


def test_a_dot_in_a_name_is_part_of_it(tmp_path):
    path = write_checkpoint(tmp_path / "run-0.5", {"weight": np.ones(3 * F, np.float32)}, LINEAR)
    assert path.name == "run-0.5.safetensors" and (tmp_path / "run-0.5.json").is_file()
    assert read_checkpoint(tmp_path / "run-0.5").card["architecture"] == "linear"


def test_a_file_is_plain_safetensors_and_plain_json(linear: Path):
    assert safetensors.numpy.load_file(linear)["weight"].tolist() == [1] * 3 * F
    assert json.loads(linear.with_suffix(".json").read_text())["architecture"] == "linear"


def test_tensors_of_another_checkpoint_than_the_card_are_refused(tmp_path, linear: Path):
    other = write_checkpoint(tmp_path / "other", {"weight": np.zeros(3 * F, np.float32)}, LINEAR)
    linear.write_bytes(other.read_bytes())  # as an end between the two files would leave it
    with pytest.raises(
        ValueError, match="mine.safetensors: is not the file that its card was written with"
    ):
        read_checkpoint(linear)
    edit_card(linear, tensors_sha256=None)  # a card from before there was a hash
    assert read_checkpoint(linear).tensors["weight"].tolist() == [0] * 3 * F


def test_a_card_taken_from_another_checkpoint_gets_the_hash_of_its_own_tensors(tmp_path, linear):
    card = read_checkpoint(linear).card
    other = write_checkpoint(tmp_path / "other", {"weight": np.zeros(3 * F, np.float32)}, card)
    again = read_checkpoint(other)
    assert again.card["tensors_sha256"] == again.sha256 != card["tensors_sha256"]


def test_a_write_that_fails_leaves_the_checkpoint_as_it_was(linear: Path, monkeypatch):
    before = linear.read_bytes(), linear.with_suffix(".json").read_bytes()
    write = Path.write_bytes

    def full(self, content):
        if self.name.startswith("mine.json"):
            raise OSError("No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(linear, {"weight": np.zeros(3 * F, np.float32)}, LINEAR)
    assert (linear.read_bytes(), linear.with_suffix(".json").read_bytes()) == before


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_card_has_the_hash_of_its_tensors(name):
    shipped = read_checkpoint(name)
    assert shipped.card["tensors_sha256"] == shipped.sha256


def test_every_layout_has_functions_and_the_other_way_round():
    assert LAYOUTS.keys() == ARCHITECTURES.keys()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "format = 2; must be 1"),
        ({"format": None}, "card: format is missing"),
        ({"architecture": "linaer"}, "architecture = 'linaer' of decision 'dispatch'; did you mean 'linear'?"),
        ({"architecture": ["linear"]}, "architecture = ['linear']"),
        ({"decision": "dispach"}, "decision = 'dispach'; did you mean 'dispatch'?"),
        ({"hidden": 8}, "hidden = 8; linear has no hidden layer"),
        ({"features": None}, "card: features is missing"),
        ({"features": ["running"]}, "features = ['running']; must be names by instance, request, queue, cluster"),
        ({"features": {"instance": []}}, "the checkpoint lacks running, waiting"),
        ({"features": {"instance": "all"}}, "'all' is no list of names"),
        ({"features": {"instances": []}}, "features: 'instance' is missing"),
    ],
    ids=str,
)  # fmt: skip
def test_a_card_that_does_not_fit_is_refused(linear: Path, changes, said):
    edit_card(linear, **changes)
    with pytest.raises(ValueError) as caught:
        read_checkpoint(linear)
    assert said in str(caught.value)
    assert str(linear) in str(caught.value)


@pytest.mark.parametrize("hidden", [0, -1, 5000, 32.0, "32", True, None])
def test_a_hidden_width_that_is_none_is_refused(tmp_path, hidden):
    path = write_checkpoint(tmp_path / "net", random_tensors(), SET_MLP)
    edit_card(path, hidden=hidden)
    with pytest.raises(
        ValueError, match=f"hidden = {hidden!r}; must be a whole number in 1 .. 1024"
    ):
        read_checkpoint(path)


def test_features_of_another_version_are_named(linear: Path):
    names = feature_names()
    names["instance"][3:5] = ["prefill_work", "kv_used"]
    edit_card(linear, features=names)
    with pytest.raises(ValueError) as caught:
        read_checkpoint(linear)
    assert (
        "features: 'instance' is of another version: this version lacks prefill_work; "
        "the checkpoint lacks prefill_tokens"
    ) in str(caught.value)
    names = feature_names()
    names["instance"] = [feature.name for feature in reversed(INSTANCE_FEATURES)]
    edit_card(linear, features=names)
    with pytest.raises(ValueError, match="the same names in another order"):
        read_checkpoint(linear)


def test_files_that_are_missing_or_something_else_say_so(linear: Path):
    with pytest.raises(
        ValueError, match=r"checkpoint = 'mein'; there is no file .*mein.safetensors"
    ):
        read_checkpoint("mein")
    for odd in (".", "/", "~nobody-of-that-name/mine", str(linear.parent), "a\0b"):
        with pytest.raises(ValueError, match="there is no file"):
            read_checkpoint(odd)
    card = linear.with_suffix(".json")
    kept = card.read_text()
    for text, said in (
        ("{", "is not JSON"),
        ("[1]", "is a list; must be a JSON object"),
        ("\udcff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ):
        card.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(ValueError, match=f"mine.json: {said}"):
            read_checkpoint(linear)
    card.unlink()
    with pytest.raises(ValueError, match="its card mine.json is missing"):
        read_checkpoint(linear)
    card.write_text(kept)
    for content in (b"", b"PK\x03\x04 a pickle of torch", linear.read_bytes()[:-4]):
        linear.write_bytes(content)
        with pytest.raises(ValueError, match="mine.safetensors: is not a safetensors file"):
            read_checkpoint(linear)


def test_a_shipped_name_is_found_and_suggested(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path)
    assert shipped_names() == []
    with pytest.raises(ValueError, match="none are shipped"):
        read_checkpoint("linear-1")
    written(tmp_path, "linear", 1)
    assert shipped_names() == ["linear-1"]
    assert read_checkpoint("linear-1").card["architecture"] == "linear"
    with pytest.raises(ValueError, match="did you mean 'linear-1'?"):
        read_checkpoint("linaer-1")


NAN = np.full(3 * F, np.nan, np.float32)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "tensor 'weight' is missing; there are none"),
        ({"wieght": np.zeros(3 * F, np.float32)}, "unknown tensor 'wieght'; did you mean 'weight'?"),
        ({"weight": np.zeros(3 * F)}, "tensor 'weight' is float64[57]; must be float32[57]"),
        ({"weight": np.zeros(54, np.float32)}, "tensor 'weight' is float32[54]; must be float32[57]"),
        ({"weight": np.zeros((1, 57), np.float32)}, "tensor 'weight' is float32[1, 57]; must be float32[57]"),
        ({"weight": np.where(np.arange(57) == 7, NAN, 0)}, "weight[7] = nan; must be finite"),
        ({"weight": np.where(np.arange(57) == 9, np.float32(np.inf), NAN * 0 + 1)}, "weight[0] = nan"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_where_they_come_from(tmp_path, linear, tensors, said):
    linear.write_bytes(safetensors.numpy.save(tensors))
    with pytest.raises(ValueError) as caught:
        read_checkpoint(linear)
    assert str(caught.value).startswith(f"{linear}: {said}")
    with pytest.raises(ValueError) as caught:
        write_checkpoint(tmp_path / "other", tensors, LINEAR)
    assert said in str(caught.value)
    assert not list(tmp_path.glob("other*"))  # nothing was written


def test_a_place_in_a_matrix_is_named(tmp_path):
    tensors = random_tensors(4)
    tensors["head.weight"][2, 5] = -np.inf
    with pytest.raises(ValueError, match=r"head.weight\[2, 5\] = -inf; must be finite"):
        write_checkpoint(tmp_path / "net", tensors, {**SET_MLP, "hidden": 4})


def test_a_card_that_is_no_json_is_not_written(tmp_path):
    weights = {"weight": np.zeros(3 * F, np.float32)}
    for value in (float("nan"), np.float32(1), {1, 2}):
        with pytest.raises(ValueError, match="must be plain JSON"):
            write_checkpoint(tmp_path / "mine", weights, {**LINEAR, "evaluation": value})
    assert not list(tmp_path.iterdir())


def test_numbers_in_memory_are_checked_too():
    with pytest.raises(ValueError, match=r"'weight' is float32\[54\]; must be float32\[57\]"):
        linear_policy(np.zeros(54))
    with pytest.raises(ValueError, match=r"weight\[0\] = nan; must be finite"):
        linear_policy(NAN)
    tensors = random_tensors(8)
    del tensors["out.bias"]
    with pytest.raises(ValueError, match="tensor 'out.bias' is missing"):
        set_network_policy(tensors)


def test_a_checkpoint_has_only_the_kinds_of_its_decision(linear: Path):
    with pytest.raises(ValueError, match="it has no queue policy, only dispatch"):
        find_policy("queue", f"learned:{linear}")


def test_a_summary_says_what_it_was_trained_for():
    card = {"format": 1, "features": feature_names(), **LINEAR}
    weights = {"weight": np.zeros(3 * F, np.float32)}
    assert Checkpoint(card, weights).summary == "A learned linear score."
    trained = card | {"algorithm": "cem", "objective": "mean-e2e"}
    expected = "A learned linear score, trained by cem for mean-e2e."
    assert Checkpoint(trained, weights).summary == expected
