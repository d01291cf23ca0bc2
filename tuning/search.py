"""A search: workers that ask for trials until the total asked for is reached exactly, in one process or several.

    work(...)     what every worker does: ask, play, tell, until the total is reached or too many trials have failed
    search(...)   open the study, look after trials that were left behind, and let workers work

All that workers share is the storage; several searches may share one, on one machine or many (tally.is_surplus).
"""

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import optuna

from servegym.tuning import trials
from servegym.tuning.interruption import Interruption
from servegym.tuning.journal import JOURNAL, FileLock, open_journal
from servegym.tuning.liveness import WORKER, Worker, fail_abandoned, wait, wait_for_names
from servegym.tuning.objectives import find_objective
from servegym.tuning.player import Player
from servegym.tuning.problem import Problem, changed_fields
from servegym.tuning.sampling import SeededSampler
from servegym.tuning.tally import SURPLUS, Tally, is_lost, is_surplus, tally
from servegym.tuning.waits import Waits, has_waiting, tell_unknown

PROBLEM = "problem"  # attribute of a study
ORIGIN, DEFAULT = "origin", "default"  # attribute of the trial that plays the default
POLL_S = 0.2
INTERRUPTED_EXIT = 130  # as of a shell's process that Ctrl-C ended
Report = Callable[[str], None]
Watch = Callable[[Tally], None]


@dataclass(frozen=True)
class Place:
    """Where a study is kept. folder: for its journal, locks and report; storage: a URL instead of the journal."""

    folder: Path
    name: str
    storage: str | None = None


@dataclass(frozen=True)
class Target:
    """When to stop: `total` trials that count, or `max_faults` that failed of themselves from number `first` on."""

    total: int
    max_faults: int
    first: int = 0
    takes_over: bool = False


def open_storage(place: Place, say: Report) -> optuna.storages.BaseStorage:
    """Open the storage; ValueError if it cannot be, or is none of Optuna's."""
    if place.storage is None:
        place.folder.mkdir(parents=True, exist_ok=True)
        storage, n_cut = open_journal(place.folder / JOURNAL)
        if n_cut:
            say(f"{place.folder / JOURNAL} ended in half a line ({n_cut} bytes), which was cut off")
        return storage
    try:
        return optuna.storages.get_storage(place.storage)
    except Exception as error:  # of the driver's, not all of one class
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"--storage {place.storage}: {reason}") from None


def open_study(problem: Problem, place: Place, say: Report) -> optuna.Study:
    """Return the study, made if there is none; ValueError if it was begun with another problem."""
    how: dict[str, Any] = {
        "storage": open_storage(place, say),
        "study_name": place.name,
        "sampler": SeededSampler(problem.sampler, problem.seed),
        "pruner": trials.pruner_of(problem.prune_p),
    }
    try:
        study = optuna.load_study(**how)
    except KeyError:  # another search may make it at this moment, too
        study = optuna.create_study(**how, direction=find_direction(problem), load_if_exists=True)
    stored = study.user_attrs.get(PROBLEM)
    if stored is None:
        study.set_user_attr(PROBLEM, problem.to_json())
    elif changes := changed_fields(stored, problem):
        where = place.storage or place.folder
        other = "--out" if place.storage is None else "--study-name and --out"
        raise ValueError(
            f"study {place.name!r} in {where} was begun with another problem ({'; '.join(changes)}); "
            f"ask for the same to go on with it, or name another {other}"
        )
    return study


def find_direction(problem: Problem) -> Literal["minimize", "maximize"]:
    """Return Optuna's word for the way the objective improves."""
    return "minimize" if find_objective(problem.objective).better == "lower" else "maximize"


def enqueue_default(study: optuna.Study, problem: Problem) -> None:
    """Let the default be the first trial; also if it was lost with its process, but not if it failed of itself."""
    known = [t for t in study.get_trials(deepcopy=False) if t.user_attrs.get(ORIGIN) == DEFAULT]
    if problem.defaults is not None and all(map(is_lost, known)):
        study.enqueue_trial(problem.defaults, user_attrs={ORIGIN: DEFAULT})


def work(
    player: Player,
    place: Place,
    target: Target,
    say: Report,
    watch: Watch,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Play trials until the target is reached; `watch` sees the numbers after each.

    KeyboardInterrupt between two runs, after Ctrl-C or once is_stopped().
    """
    study = open_study(player.problem, place, say)
    with Interruption(is_stopped) as interruption, Worker(place.folder) as worker:
        while True:
            interruption.check()
            fail_abandoned(study, target.takes_over)
            now = tally(study, target.first)
            watch(now)
            if now.done >= target.total or now.failed >= target.max_faults:
                return
            if now.done + now.underway >= target.total and not has_waiting(study):
                wait()
                continue
            trial = study.ask()
            trial.set_user_attr(WORKER, worker.name)
            if is_surplus(study, trial.number, target.total):
                trials.give_up(study, trial, SURPLUS)
                continue
            reason = trials.play(study, trial, player, interruption.check)
            if reason is not None:
                say(f"trial {trial.number} failed with {trial.params}: {reason}")


def is_orphan() -> bool:
    """Return whether this is a worker whose parent has died."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def work_in_process(problem: Problem, place: Place, target: Target, stop: Any) -> None:
    """Be one of several workers, until `stop` is set or the parent dies; failures go to stderr."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        player = Player(problem)
        work(
            player,
            place,
            target,
            say_to_stderr,
            lambda _: None,
            lambda: stop.value or is_orphan(),
        )
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT)


def say_to_stderr(text: str) -> None:
    """Print one line on stderr."""
    print(text, file=sys.stderr, flush=True)


def search(
    problem: Problem,
    place: Place,
    total: int,
    workers: int = 1,
    max_faults: int = 10,
    takes_over: bool = False,
    say: Report = say_to_stderr,
    watch: Watch = lambda _: None,
) -> optuna.Study:
    """Search until `total` trials count, and return the study. A study that exists goes on.

    ValueError for bad input; RuntimeError if all worker processes died.
    """
    for name, value in (("trials", total), ("workers", workers), ("max_failures", max_faults)):
        if value < 1:
            raise ValueError(f"{name} = {value}; must be >= 1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    player = Player(problem)  # before anything is stored or started: bad input ends here
    place.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(place.folder / "start.lock"):
        study = open_study(problem, place, say)
        wait_for_names(study, say)
        lost = fail_abandoned(study, takes_over)
        if lost:
            say(f"trials left behind by processes that died, now FAIL: {', '.join(map(str, lost))}")
        enqueue_default(study, problem)
    tell_unknown(study, say)
    waits = Waits(study, total, say)

    def watch_both(now: Tally) -> None:
        watch(now)
        waits.look(now)

    first = len(study.get_trials(deepcopy=False))
    first -= tally(study).underway
    target = Target(total, max_faults, max(0, first), takes_over)
    if workers == 1:
        work(player, place, target, say, watch_both)
    else:
        work_in_processes(problem, place, target, workers, study, watch_both)
    return study


def work_in_processes(
    problem: Problem, place: Place, target: Target, workers: int, study: optuna.Study, watch: Watch
) -> None:
    """Let several processes work and wait for them; interrupted, let them end the runs they are at."""
    context = multiprocessing.get_context("spawn")
    stop = context.RawValue("b", 0)  # no lock: a worker killed with it would stop the others
    processes: list[BaseProcess] = [
        context.Process(target=work_in_process, args=(problem, place, target, stop))
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        while any(process.is_alive() for process in processes):
            watch(tally(study, target.first))
            processes[0].join(POLL_S) if processes[0].is_alive() else wait(POLL_S)
    finally:
        if sys.exc_info()[0] is not None:
            stop.value = 1
        for process in processes:
            process.join()
    now = tally(study, target.first)
    watch(now)
    if now.done < target.total and now.failed < target.max_faults:
        fail_abandoned(study)
        codes = ", ".join(str(process.exitcode) for process in processes)
        raise RuntimeError(f"all workers ended early (exit codes {codes}); run it again to go on")
