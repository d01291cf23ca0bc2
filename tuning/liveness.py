"""Which trials somebody still works on: a worker holds a lock while it lives, and its trials name the lock.

A trial that is RUNNING without a living worker was killed with it, and becomes FAIL. The lock is a file's flock, which
the system releases with the process, so that no worker is ever taken for dead, nor a dead one for alive because its
process id went to another. Locks can be tried on their own machine only, which is one of the same name or of the same
boot: a container that starts again has another name. Trials of other machines are left alone, and told of (waits.py).
"""

import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from servegym.tuning.journal import FileLock
from servegym.tuning.tally import KILLED, REASON

WORKER = "worker"  # attribute of a trial
UNNAMED_S = 30.0  # after which a trial that no worker has put its name to counts as abandoned


@cache
def boot_id() -> str:
    """Return what this machine's kernel calls its boot, the same in all its containers; "" where it has no name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Worker:
    """A living worker: use it as a context. name: what its trials say, HOST@BOOT:LOCK."""

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute() / "workers"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{uuid.uuid4()}.lock"
        self._lock = FileLock(self._path)
        self.name = f"{socket.gethostname()}@{boot_id()}:{self._path}"

    def __enter__(self) -> "Worker":
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        self._lock.release()


def host_of(worker: str) -> str:
    """Return the name of a worker's machine."""
    return worker.partition(":")[0].partition("@")[0]


def is_alive(worker: str) -> bool | None:
    """Return whether a worker lives; None if that cannot be told from here, as of another machine.

    A lock that is missing is a dead worker's, but for another container of this machine, whose files may be elsewhere.
    """
    where, _, path = worker.partition(":")
    host, _, boot = where.partition("@")
    is_same_host = host == socket.gethostname()
    if not is_same_host and (not boot or boot != boot_id()):
        return None
    if not os.path.exists(path):
        return False if is_same_host else None
    lock = FileLock(path)
    if not lock.acquire(is_waiting=False):
        return True
    if is_same_host:  # of another container it must stay: missing, it would say nothing
        Path(path).unlink(missing_ok=True)
    lock.release()
    return False


def is_abandoned(trial: FrozenTrial, takes_over: bool = False) -> bool:
    """Return whether nobody works on a trial that is RUNNING; takes_over: nobody where it cannot be told."""
    worker = trial.user_attrs.get(WORKER)
    if worker is None:
        started = trial.datetime_start
        return started is None or (datetime.now() - started).total_seconds() > UNNAMED_S
    lives = is_alive(worker)
    return takes_over if lives is None else not lives


def fail_abandoned(study: optuna.Study, takes_over: bool = False) -> list[int]:
    """Make FAIL of every RUNNING trial whose worker is dead; return their numbers."""
    failed = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if is_abandoned(trial, takes_over) and fail(study, trial, KILLED):
            failed.append(trial.number)
    return failed


def wait_for_names(study: optuna.Study, say: Callable[[str], None]) -> None:
    """Wait until every trial that is RUNNING now has its worker's name, or is abandoned.

    A worker killed before it could put its name leaves one that may still be somebody's; while that is not known,
    neither is the place of the next trial, from which its parameters are drawn (sampling.py).
    """
    deadline = time.monotonic() + UNNAMED_S
    awaited = unnamed(study)
    n_waits = 0
    while (left := awaited & unnamed(study)) and time.monotonic() < deadline:
        if n_waits == 1:  # others at work name theirs meanwhile
            numbers = ", ".join(map(str, sorted(left)))
            say(
                f"no worker has put its name to trials {numbers}: waiting for up to {UNNAMED_S:g} s"
            )
        wait()
        n_waits += 1


def unnamed(study: optuna.Study) -> set[int]:
    """Return the numbers of trials that are RUNNING, without a worker's name but not abandoned yet."""
    return {
        trial.number
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        if WORKER not in trial.user_attrs and not is_abandoned(trial)
    }


def fail(study: optuna.Study, trial: FrozenTrial, reason: str) -> bool:
    """Make FAIL of a trial, saying why; return whether nobody had finished it meanwhile."""
    storage = study._storage  # the public tell() gives a trial no attribute after it was asked for
    try:
        storage.set_trial_user_attr(trial._trial_id, REASON, reason)
        study.tell(trial.number, state=TrialState.FAIL)
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError, RuntimeError):
        return False
    return True


def wait(seconds: float = 0.05) -> None:
    """Wait for other workers."""
    time.sleep(seconds)
