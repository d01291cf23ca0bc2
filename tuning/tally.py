"""What counts: how many trials of a study are done, failed of themselves, or lost with their process.

The total asked for is of trials that ended with a value: COMPLETE, or PRUNED after some seeds. FAIL never counts, of
whatever reason: a new trial is played in its place. A trial is *lost* if its process was killed or interrupted, or if
another worker had reached the total first; all other FAILs are the trial's own *faults*.
"""

from collections import Counter
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState

REASON = "reason"  # attribute of a trial that failed
KILLED = "killed: its process died"
INTERRUPTED = "interrupted"
SURPLUS = "surplus: another worker had reached the total"
LOST = (KILLED, INTERRUPTED, SURPLUS)
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Tally:
    """Numbers of trials. faults: why trials failed of themselves, and how many."""

    complete: int
    pruned: int
    underway: int  # running, or waiting to be
    lost: int
    faults: dict[str, int]

    @property
    def done(self) -> int:
        """Trials that count towards the total."""
        return self.complete + self.pruned

    @property
    def failed(self) -> int:
        """Trials that failed of themselves."""
        return sum(self.faults.values())


def is_lost(trial: FrozenTrial) -> bool:
    """Return whether a trial failed by no fault of its own."""
    return trial.state == TrialState.FAIL and trial.user_attrs.get(REASON) in LOST


def tally(study: optuna.Study, first: int = 0) -> Tally:
    """Return the numbers of trials; faults of those from number `first` on only."""
    trials = study.get_trials(deepcopy=False)
    states = Counter(trial.state for trial in trials)
    faults = Counter(
        trial.user_attrs.get(REASON, UNKNOWN)
        for trial in trials
        if trial.state == TrialState.FAIL and not is_lost(trial) and trial.number >= first
    )
    return Tally(
        complete=states[TrialState.COMPLETE],
        pruned=states[TrialState.PRUNED],
        underway=states[TrialState.RUNNING] + states[TrialState.WAITING],
        lost=sum(map(is_lost, trials)),
        faults=dict(faults),
    )


def is_surplus(study: optuna.Study, number: int, total: int) -> bool:
    """Return whether `total` trials before this one are done or may yet be.

    Of all that get past this, the last has fewer than `total` before it that do not fail, so no more than `total` ever
    count, however many workers ask at once and wherever they are.
    """
    before = [
        trial
        for trial in study.get_trials(deepcopy=False)
        if trial.number < number and trial.state != TrialState.FAIL
    ]
    return len(before) >= total
