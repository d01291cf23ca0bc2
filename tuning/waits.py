"""What a search says of trials that others work on: at its start, and once when it waits for them.

Nobody here can tell whether the worker of another machine lives, so that a search waits for its trial, for ever if that
machine is gone. Then a person has to know: which trial, of which host, and that --take-over gives it up.
"""

import time
from collections.abc import Callable

import optuna
from optuna.trial import TrialState

from servegym.tuning.liveness import WORKER, host_of, is_alive
from servegym.tuning.tally import Tally

PATIENCE_S = 10.0  # of waiting for workers that live, before it is said
ADVICE = (
    "cannot be asked from here whether it lives; if it is gone, --take-over gives its trials up"
)


def has_waiting(study: optuna.Study) -> bool:
    """Return whether a trial waits to be played."""
    return bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))


def trials_by_host(study: optuna.Study, only_unknown: bool) -> dict[str, list[int]]:
    """Return the numbers of RUNNING trials by host; only_unknown: of those whose worker cannot be seen from here."""
    found: dict[str, list[int]] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get(WORKER)
        if worker is not None and not (only_unknown and is_alive(worker) is not None):
            found.setdefault(host_of(worker), []).append(trial.number)
    return found


def told(by_host: dict[str, list[int]]) -> str:
    """Return which trials of which hosts, "trial 3 of a, trials 4, 5 of b"."""
    return ", ".join(
        f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))} of {host}"
        for host, numbers in by_host.items()
    )


def tell_unknown(study: optuna.Study, say: Callable[[str], None]) -> None:
    """Say which trials others seem to work on that cannot be seen from here."""
    if unknown := trials_by_host(study, only_unknown=True):
        say(f"counted as running: {told(unknown)}, which {ADVICE}")


class Waits:
    """Looks at every tally of a search, and says once that others are waited for, and which."""

    def __init__(self, study: optuna.Study, total: int, say: Callable[[str], None]) -> None:
        self._study, self._total, self._say = study, total, say
        self._since: float | None = None
        self._is_told = False

    def look(self, now: Tally) -> None:
        """Say it at once of machines that cannot be seen, after PATIENCE_S of those that can."""
        is_short = now.done < self._total <= now.done + now.underway
        if self._is_told or not is_short or has_waiting(self._study):
            self._since = None
            return
        self._since = self._since or time.monotonic()
        unknown = trials_by_host(self._study, only_unknown=True)
        if unknown:
            self._tell(f"waiting for {told(unknown)}, which {ADVICE}")
        elif time.monotonic() - self._since > PATIENCE_S:
            running = trials_by_host(self._study, only_unknown=False)
            if running:
                self._tell(f"waiting for {told(running)}")

    def _tell(self, text: str) -> None:
        self._say(text)
        self._is_told = True
