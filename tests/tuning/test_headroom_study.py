"""The study `headroom` in full: 100 trials x 5 seeds x 10,000 requests, killed in the middle, in three minutes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from tuning_problems import done, n_ended

from servegym.tuning.journal import JOURNAL, open_journal

TOTAL, LIMIT_S = 100, 180.0  # on two cores that do nothing else


def start(folder: Path) -> subprocess.Popen[str]:
    words = ["-m", "servegym", "tune", "headroom", "--trials", str(TOTAL), "--workers", "2"]
    words += ["--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def trials_of(folder: Path) -> list[FrozenTrial]:
    return optuna.load_study(
        study_name="headroom", storage=open_journal(folder / JOURNAL)[0]
    ).trials


@pytest.mark.slow
def test_case_30_full_study_killed_in_the_middle_is_exact_and_in_time(tmp_path: Path):
    """Ids and values of finished trials are equal after SIGKILL and resumption, and the total is exact."""
    folder = tmp_path / "headroom"
    began = time.monotonic()
    process = start(folder)
    while n_ended(folder) < TOTAL // 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    before = [(t.number, t.params, t.value) for t in trials_of(folder) if t.state in ended]
    process = start(folder)
    out, complaint = process.communicate()
    wall_s = time.monotonic() - began
    assert process.returncode == 0, complaint
    after = trials_of(folder)
    assert [
        (t.number, t.params, t.value) for t in after if t.number in {n for n, _, _ in before}
    ] == before
    assert len(done(after)) == TOTAL and f"{TOTAL} done" in out
    assert all(t.state in (*ended, TrialState.FAIL) for t in after)
    assert wall_s <= LIMIT_S
