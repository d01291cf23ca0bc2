"""Profiles whose iterations all last the same, whatever they hold: results can be worked out by hand.

FLAT takes 10 ms an iteration, SLOW 20 ms. Importing this module adds both to the profile table.
"""

from dataclasses import replace

from servegym.simulator.config import ClusterConfig
from servegym.simulator.profiles import Profile, profiles

_FLAT = Profile(
    device="test",
    model="flat",
    tensor_parallel=1,
    knee_tokens=1,
    c0_ms=10.0,
    c_token_ms=0.0,
    c_above_knee_ms=0.0,
    c_decode_step_ms=0.0,
    c_seq_ms=0.0,
    c_kv_ms=0.0,
    c_prefill_step_ms=0.0,
    c_prefill_attention_ms=0.0,
    fit_mape_pct=None,
    max_prefill_tokens=None,
    max_kv_tokens=None,
    kv_blocks_default=1000,
    calibration=1.0,
    source="made for tests",
    licence="MIT",
    note="",
    kv_bytes_per_token=1_000_000,  # a block of 16 takes 2 ms at 8 GB/s
)
_SLOW = replace(_FLAT, model="slow", c0_ms=20.0, tensor_parallel=2)
profiles().update({row.name: row for row in (_FLAT, _SLOW)})

FLAT, SLOW = _FLAT.name, _SLOW.name


def one_server(**options) -> ClusterConfig:
    """Return one FLAT instance that serves one request at a time."""
    return ClusterConfig(**({"instances": 1, "profile": FLAT, "max_num_seqs": 1} | options))
