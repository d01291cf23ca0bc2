"""Iterations made from known coefficients, by the formula written out once more, and their CSV."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from servegym.simulator.profile import Profile

TRUTH = Profile("made", "up", 1, 300, 7.0, 0.02, 0.015, 0.5, 0.01, 5e-5, 0.8, 1e-6)


def draw(
    row: Profile = TRUTH,
    n: int = 600,
    seed: int = 0,
    kinds: tuple[str, ...] = ("decode", "prefill", "mixed"),
    noise: float = 0.0,
) -> dict[str, np.ndarray]:
    """Return n iterations of those kinds in turn; noise: standard deviation of the factor on times."""
    rng = np.random.default_rng(seed)
    kind = np.array([kinds[i % len(kinds)] for i in range(n)])
    decodes = np.where(kind == "prefill", 0, log_uniform(rng, 1, 256, n))
    prefill = np.where(kind == "decode", 0, log_uniform(rng, 16, 4096, n))
    prefix = np.where(prefill > 0, rng.integers(0, 4000, n), 0)
    context = log_uniform(rng, 64, 8192, n)
    columns = {
        "prefill_tokens": prefill,
        "prefix_tokens": prefix,
        "decode_seqs": decodes,
        "decode_ctx": context,
        "kv_tokens": decodes * context,
        "prefill_attn": prefill * (prefix + (prefill + 1) / 2),
    }
    t_ms = time_ms(row, columns) * (1.0 + noise * rng.standard_normal(n))
    return columns | {"t_ms": t_ms}


def log_uniform(rng: np.random.Generator, low: int, high: int, n: int) -> np.ndarray:
    """Return n whole numbers, log-uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high + 1), n)).astype(np.int64)


def time_ms(row: Profile, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the time of each iteration, ms."""
    p, b = columns["prefill_tokens"], columns["decode_seqs"]
    total = row.c0_ms + row.c_token_ms * (p + b)
    total = total + row.c_above_knee_ms * np.maximum(0, p + b - row.knee_tokens)
    decode = row.c_decode_step_ms + row.c_seq_ms * b + row.c_kv_ms * columns["kv_tokens"]
    prefill = row.c_prefill_step_ms + row.c_prefill_attention_ms * columns["prefill_attn"]
    return row.calibration * (total + (b > 0) * decode + (p > 0) * prefill)


def write_csv(
    path: Path, columns: Mapping[str, np.ndarray], leave_out: tuple[str, ...] = ()
) -> Path:
    """Write columns as a CSV and return its path."""
    kept = {name: column.tolist() for name, column in columns.items() if name not in leave_out}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(kept)
        writer.writerows(zip(*kept.values(), strict=True))
    return path
