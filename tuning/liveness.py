"""Which trials somebody still works on: a worker holds a lock while it lives, and its trials name the lock.

A trial that is RUNNING without a living worker was killed with it, and becomes FAIL. The lock is a file's flock, which
the system releases with the process, so that no worker is ever taken for dead, nor a dead one for alive because its
process id went to another. Locks can be tried on their own machine only: trials of other machines are left alone.
"""

import os
import socket
import time
import uuid
from datetime import datetime
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from servegym.tuning.journal import FileLock
from servegym.tuning.tally import KILLED, REASON

WORKER = "worker"  # attribute of a trial
UNNAMED_S = 30.0  # after which a trial that no worker has put its name to counts as abandoned


class Worker:
    """A living worker: use it as a context. name: what its trials say."""

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute() / "workers"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{uuid.uuid4()}.lock"
        self._lock = FileLock(self._path)
        self.name = f"{socket.gethostname()}:{self._path}"

    def __enter__(self) -> "Worker":
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        self._lock.release()


def is_alive(worker: str) -> bool:
    """Return whether a worker lives, as far as this machine can tell."""
    host, _, path = worker.partition(":")
    if host != socket.gethostname():
        return True
    if not os.path.exists(path):
        return False
    lock = FileLock(path)
    if not lock.acquire(is_waiting=False):
        return True
    Path(path).unlink(missing_ok=True)
    lock.release()
    return False


def is_abandoned(trial: FrozenTrial, takes_over: bool = False) -> bool:
    """Return whether nobody works on a trial that is RUNNING; takes_over: of another machine, nobody."""
    worker = trial.user_attrs.get(WORKER)
    if worker is None:
        started = trial.datetime_start
        return started is None or (datetime.now() - started).total_seconds() > UNNAMED_S
    if takes_over and not worker.startswith(f"{socket.gethostname()}:"):
        return True
    return not is_alive(worker)


def fail_abandoned(study: optuna.Study, takes_over: bool = False) -> list[int]:
    """Make FAIL of every RUNNING trial whose worker is dead; return their numbers."""
    failed = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if is_abandoned(trial, takes_over) and fail(study, trial, KILLED):
            failed.append(trial.number)
    return failed


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
