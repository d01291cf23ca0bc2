"""Profiles: the table, and files of one's own with every fault named."""

import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegym.simulator.config import ClusterConfig
from servegym.simulator.profile import COEFFICIENTS, Profile
from servegym.simulator.profiles import find_profile, profiles

A100 = "a100_sxm/Llama-3.1-8B/tp1"
SHIPPED = [name for name in profiles() if not name.startswith("test/")]


def written(folder: Path, **changes: Any) -> str:
    """The path of a file with the row of A100, changed; ... leaves a field out."""
    values = {n: v for n, v in (asdict(find_profile(A100)) | changes).items() if v is not ...}
    path = folder / "own.json"
    path.write_text(json.dumps(values))
    return str(path)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_rows_are_valid_and_survive_their_file(name: str, tmp_path: Path):
    row = find_profile(name)
    assert row.name == name
    assert row.source and row.licence and row.kv_blocks_default
    assert row.is_estimate == (row.fit_mape_pct is None)
    row.save(tmp_path / "row.json")
    assert find_profile(str(tmp_path / "row.json")) == row


def test_unknown_name_has_the_near_match():
    with pytest.raises(ValueError, match="unknown profile 'a100_sxm/Llama-3.1-8B'; did you mean"):
        find_profile("a100_sxm/Llama-3.1-8B")


def test_a_handwritten_file_needs_the_key_the_knee_and_the_coefficients(tmp_path: Path):
    values = {"device": "d", "model": "m", "tensor_parallel": 2, "knee_tokens": 64, "c0_ms": 5}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(values | dict.fromkeys(COEFFICIENTS[1:], 0)))
    row = find_profile(str(path))
    assert row == Profile("d", "m", 2, 64, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert row.name == "d/m/tp2" and row.calibration == 1.0


def test_all_missing_fields_are_listed(tmp_path: Path):
    path = written(tmp_path, device=..., c_kv_ms=..., c_seq_ms=..., note=...)
    with pytest.raises(ValueError, match=r"own\.json': missing device, c_seq_ms, c_kv_ms$"):
        find_profile(path)


NAN, INF = float("nan"), float("inf")
FAULTS = [
    ({"c0_ms": 0}, "c0_ms = 0; must be > 0 and <= 1,000,000"),
    ({"c0_ms": -1.5}, "c0_ms = -1.5; must be > 0"),
    ({"c0_ms": NAN}, "c0_ms = nan; must be > 0"),
    ({"c0_ms": "7"}, "c0_ms = '7'; must be > 0"),
    ({"c0_ms": None}, "c0_ms = None; must be > 0"),
    ({"c0_ms": True}, "c0_ms = True; must be > 0"),
    ({"c_kv_ms": -1e-9}, "c_kv_ms = -1e-09; must be >= 0"),
    ({"c_token_ms": INF}, "c_token_ms = inf; must be >= 0 and <= 1,000,000"),
    ({"calibration": 0.0}, "calibration = 0.0; must be > 0 and <= 1,000"),
    ({"calibration": 1e4}, "calibration = 10000.0; must be > 0 and <= 1,000"),
    ({"fit_mape_pct": -1}, "fit_mape_pct = -1; must be >= 0"),
    ({"knee_tokens": 64.5}, "knee_tokens = 64.5; must be a whole number >= 0"),
    ({"knee_tokens": 2**40}, "knee_tokens = 1099511627776; must be a whole number"),
    ({"tensor_parallel": 0}, "tensor_parallel = 0; must be a whole number >= 1"),
    ({"kv_blocks_default": 0}, "kv_blocks_default = 0; must be a whole number >= 1"),
    ({"max_kv_tokens": "many"}, "max_kv_tokens = 'many'; must be a whole number >= 0"),
    ({"model": "meta/llama"}, "model = 'meta/llama'; must be a name without /"),
    ({"source": 3}, "source = 3; must be a text"),
    ({"c_kw_ms": 1.0}, "unknown field 'c_kw_ms'; did you mean 'c_kv_ms'?"),
]


@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_a_bad_value_is_named(changes: dict[str, Any], message: str, tmp_path: Path):
    path = written(tmp_path, **changes)
    with pytest.raises(ValueError) as refusal:
        find_profile(path)
    assert str(refusal.value).startswith(f"profile {path!r}: {message}")


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"arrival_s": 1}'])
def test_json_of_something_else_is_no_profile(text: str, tmp_path: Path):
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(ValueError, match=r"own\.json is not a profile"):
        find_profile(str(tmp_path / "own.json"))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path):
    with pytest.raises(ValueError, match=r"profile '/no/such\.json': No such file or directory"):
        find_profile("/no/such.json")
    (tmp_path / "own.json").write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="is not JSON"):
        find_profile(str(tmp_path / "own.json"))
    with pytest.raises(ValueError, match=r"must end in \.json"):
        find_profile(A100).save(tmp_path / "own.txt")
    assert not (tmp_path / "own.txt").exists()


def test_config_reads_a_file_once_and_keeps_it(tmp_path: Path):
    path = written(tmp_path)
    config = ClusterConfig(profile=(path, A100))
    Path(path).unlink()
    for kept in (config, pickle.loads(pickle.dumps(config))):
        assert kept == config
        assert kept.fleet_profiles == [find_profile(A100)] * 2
    with pytest.raises(ValueError, match="No such file"):
        ClusterConfig(profile=path)


def test_a_changed_file_is_read_anew(tmp_path: Path):
    first = ClusterConfig(profile=written(tmp_path)).fleet_profiles[0]
    second = ClusterConfig(profile=written(tmp_path, c0_ms=99.0)).fleet_profiles[0]
    assert second == replace(first, c0_ms=99.0)


def test_without_default_kv_blocks_the_config_must_give_them(tmp_path: Path):
    path = written(tmp_path, kv_blocks_default=None)
    with pytest.raises(
        ValueError, match=f"{A100} has no default number of KV blocks; give kv_blocks"
    ):
        ClusterConfig(profile=path)
    config = ClusterConfig(profile=path, kv_blocks=500)
    assert config.kv_blocks_of(config.fleet_profiles[0]) == 500


def test_kv_blocks_are_counted_in_the_configs_block_size():
    row = find_profile(A100)
    assert row.kv_blocks(16) == row.kv_blocks_default == 28616
    assert np.array([row.kv_blocks(32), row.kv_blocks(8)]).tolist() == [14308, 57232]
