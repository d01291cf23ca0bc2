"""Small tuning problems for tests: n-tier's headroom on short traces, as a Problem and as a command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from servegym.simulator.config import ClusterConfig
from servegym.tuning.outcome import is_done
from servegym.tuning.problem import Problem
from servegym.tuning.search import Place, open_study
from servegym.tuning.spaces import read_space

SYSTEM = "n-tier:migration=none"
PARAMS = ("peak=0:0.6", "form=exponential,linear")
CLUSTER: dict[str, Any] = {
    "profile": "a100_sxm/Llama-2-7B/tp1",
    "instances": 2,
    "kv_blocks": 128,
    "max_num_seqs": 64,
    "tiers": 3,
}
N_REQUESTS, SEEDS = 300, 3
OPTIONS = (
    "--instances 2 --kv-blocks 128 --max-num-seqs 64 --tiers 3 --profile a100_sxm/Llama-2-7B/tp1 "
    f"--workload zipf-64-512 --requests {N_REQUESTS} --load 1.1 --tier-mix uniform "
    f"--seeds {SEEDS} --held-out 2 --prune-p 0"
).split()
COMMAND = ["system", SYSTEM, "--param", PARAMS[0], "--param", PARAMS[1], *OPTIONS]


def problem(**changes: Any) -> Problem:
    """Return the problem of COMMAND, with fields changed."""
    config = ClusterConfig(**CLUSTER)
    fields: dict[str, Any] = {
        "study": "n-tier",
        "system": SYSTEM,
        "dimensions": read_space(SYSTEM, PARAMS, config),
        "objective": "mean-e2e",
        "workload": "zipf-64-512",
        "trace": None,
        "cluster": config.model_dump(mode="json"),
        "load": 1.1,
        "rate_per_s": None,
        "n_requests": N_REQUESTS,
        "arrivals": None,
        "tier_mix": "uniform",
        "horizon_s": None,
        "seeds": SEEDS,
        "seed": 0,
        "held_out": 2,
        "sampler": "tpe",
        "prune_p": 0.0,
    }
    return Problem(**(fields | changes))


def place(folder: Path) -> Place:
    """Return where COMMAND keeps its study with --out FOLDER."""
    return Place(folder, "n-tier")


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Start `servegym tune` on COMMAND in a process of its own."""
    words = [sys.executable, "-m", "servegym", "tune", *COMMAND, "--out", str(folder), *more]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder.parent
    )


def stored(folder: Path) -> list[FrozenTrial]:
    """Return all trials in a folder's journal."""
    return open_study(problem(), place(folder), print).get_trials()


def done(trials: list[FrozenTrial]) -> list[tuple[dict[str, Any], dict[int, float], float | None]]:
    """Return what identifies the trials that count, in order: settings, values by seed, value."""
    return [(t.params, t.intermediate_values, t.value) for t in trials if is_done(t)]


def n_ended(folder: Path) -> int:
    """Return how many trials a journal says have ended with a value; for waiting, without a lock."""
    journal = folder / "journal.log"
    if not journal.exists():
        return 0
    ended = 0
    for line in journal.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        ended += entry.get("state") in (TrialState.COMPLETE, TrialState.PRUNED)
    return ended
