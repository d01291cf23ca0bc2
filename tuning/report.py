"""The report of a study: text, plain values, and files: trials.csv, report.json, best.yaml and pictures.

best.yaml is a system that every command takes by its path (baselines/system_file.py), from any folder. The number of
tiers is the cluster's, not the system's: it stands under `cluster`, and the command that compares has it as an option.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib

from servegym.baselines.system_file import FORMAT, head_of, portable, tiers_of, write_system_file
from servegym.experiments.rerun import command_line
from servegym.experiments.statistics import Interval, mean_interval
from servegym.simulator.config import ClusterConfig
from servegym.traces.workload import FILE_ENDING
from servegym.tuning import plots
from servegym.tuning.drift import SPEEDS
from servegym.tuning.outcome import Outcome, Paired
from servegym.tuning.problem import Problem
from servegym.tuning.spaces import TIERS
from servegym.tuning.tables import trials_table

BEST_FILE, REPORT_FILE = "best.yaml", "report.json"
PICTURES = ("history", "importances", "pair", "slices")


def identity(name: str, problem: Problem) -> dict[str, Any]:
    """Return what a report names its study by."""
    return {
        "study": name,
        "system": problem.system,
        "workload": problem.trace or problem.workload,
        "space": [str(each) for each in problem.dimensions],
    }


def check_folder(folder: Path, name: str, problem: Problem) -> None:
    """ValueError if a folder holds the report of another study, which saving would overwrite.

    A report that cannot be read, as one half written, is none.
    """
    try:
        kept = json.loads((folder / REPORT_FILE).read_text())
    except (OSError, ValueError):
        return
    now = identity(name, problem)
    then = {key: kept.get(key) for key in now} if isinstance(kept, dict) else {}
    if then != now:
        raise ValueError(
            f"{folder} holds the report of another study, {told(then)}; this one is {told(now)}: "
            "name another --out"
        )


def told(named: dict[str, Any]) -> str:
    """Return what a report names its study by, as text."""
    space = named.get("space") or []
    texts = [f"{key} {named.get(key)}" for key in ("study", "system", "workload")]
    return ", ".join([*texts, f"space {' '.join(map(str, space))}"])


def to_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the report as plain values."""
    problem, counts = outcome.problem, outcome.tally
    document: dict[str, Any] = identity(outcome.name, problem) | {
        "objective": problem.objective,
        "unit": outcome.objective.unit,
        "better": outcome.objective.better,
        "trials": {
            "done": counts.done,
            "complete": counts.complete,
            "pruned": counts.pruned,
            "failed": counts.failed,
            "lost": counts.lost,
            "faults": counts.faults,
        },
        "best": None,
    }
    if outcome.best is not None:
        document["best"] = {
            "trial": outcome.best.number,
            "params": outcome.best_params,
            "system": problem.system_text(outcome.best_params),
        }
        document["tuning_seeds"] = None if outcome.tuning is None else outcome.tuning.to_dict()
        document["held_out"] = None if outcome.held_out is None else outcome.held_out.to_dict()
    document["importances"] = outcome.importances
    document["notes"] = list(outcome.notes)
    return document


def to_text(outcome: Outcome) -> str:
    """Return the report as lines."""
    counts, problem = outcome.tally, outcome.problem
    lines = [
        f"{outcome.name}: {problem.system}, {plots.about(outcome).partition('; ')[2]}; "
        f"{outcome.objective.name} [{outcome.objective.unit}]",
        f"trials      {counts.done} done ({counts.complete} complete, {counts.pruned} given up by the "
        f"pruner), {counts.failed} failed, {counts.lost} lost with their process",
    ]
    lines += [f"  failed    {n} x {reason}" for reason, n in counts.faults.items()]
    if outcome.best is None:
        return "\n".join([*lines, "no trial is complete: nothing to report"])
    lines += [
        f"best        trial {outcome.best.number}: {params_text(outcome)}",
        f"default     {default_text(outcome)}",
    ]
    if outcome.tuning is not None:
        lines.append(
            f"tuning      {paired_text(outcome.tuning)} (flattering: these seeds chose it)"
        )
    if outcome.held_out is not None:
        told = outcome.held_out.verdict or "one seed, no verdict"
        lines.append(f"held out    {paired_text(outcome.held_out)}: {told}")
    if outcome.importances:
        shares = ", ".join(f"{key} {share:.2f}" for key, share in outcome.importances.items())
        lines.append(f"importance  {shares}")
    return "\n".join([*lines, *(f"note: {text}" for text in outcome.notes)])


def params_text(outcome: Outcome) -> str:
    """Return the best trial's settings."""
    return ", ".join(f"{key}={shown(value)}" for key, value in outcome.best_params.items())


def default_text(outcome: Outcome) -> str:
    """Return the default's settings; as it is where one cannot be told apart from the trace's."""
    defaults = outcome.problem.defaults
    if defaults is None:
        return f"{outcome.problem.system} as it is"
    return ", ".join(f"{key}={shown(value)}" for key, value in defaults.items())


def shown(value: object) -> str:
    """Return a value with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def paired_text(paired: Paired) -> str:
    """Return both means, the difference and its interval."""
    best, default = mean_interval(paired.best), mean_interval(paired.default)
    change = "" if paired.change_percent is None else f", {paired.change_percent:+.1f} %"
    return (
        f"{shown(best.mean)} against {shown(default.mean)} over {len(paired.seeds)} seeds; difference "
        f"{interval_text(paired.difference)}{change}"
    )


def interval_text(interval: Interval) -> str:
    """Return a difference with its 95 % interval."""
    if interval.low is None or interval.high is None:
        return f"{interval.mean:+.4g}"
    return f"{interval.mean:+.4g} [{interval.low:+.4g}, {interval.high:+.4g}]"


def save(outcome: Outcome, folder: Path, command: str | None = None) -> list[Path]:
    """Write all files of the report into a folder that there is, none of an older one left; return their paths."""
    for name in PICTURES:
        (folder / f"{name}.png").unlink(missing_ok=True)
    written = [folder / "trials.csv", folder / REPORT_FILE]
    trials_table(outcome).to_csv(written[0], index=False)
    written[1].write_text(json.dumps(to_dict(outcome), indent=2, allow_nan=False) + "\n")
    if outcome.best is None:
        (folder / BEST_FILE).unlink(missing_ok=True)
        return written
    written.append(folder / BEST_FILE)
    write_best(outcome, written[-1], command)
    return written + save_plots(outcome, folder)


def write_best(outcome: Outcome, path: Path, command: str | None) -> None:
    """Write the best trial's system, and where it comes from."""
    assert outcome.best is not None
    problem, params = outcome.problem, outcome.best_params
    found: dict[str, Any] = {
        "study": outcome.name,
        "trial": outcome.best.number,
        "objective": problem.objective,
        "params": params,
        "workload": problem.trace or problem.workload,
        "load": problem.load,
        "tuning_seeds": problem.tuning_seeds,
        "command": command,
        "servegym": version("servegym"),
    }
    if outcome.held_out is not None:
        own = outcome.held_out.to_dict()
        keys = ("seeds", "difference", "difference_percent", "verdict")
        found["held_out"] = {key: own[key] for key in keys}
    whole = portable(problem.system_text(params))
    system = head_of(whole)
    pairs = (part.partition("=") for part in whole[len(system) + 1 :].split(",") if part)
    settings = {key.strip(): value.strip() for key, _, value in pairs}
    document = {
        "format": FORMAT,
        "system": system,
        "settings": {key: typed(value) for key, value in settings.items()},
    }
    is_searched = any(each.key == TIERS for each in problem.dimensions)
    if is_searched or tiers_of(problem.system) is not None:
        document["cluster"] = {TIERS: problem.tiers(params)}
    heading = "A system that `servegym tune` found; any command takes this file as a system's name."
    if compare := compare_command(outcome, path):
        heading += f"\n{compare}"
        if problem.trace is not None:
            heading += f"\n{blocks_note(problem)}"
    write_system_file(path, document | {"provenance": found}, heading)


def typed(text: str) -> float | int | str:
    """Return a setting as the number that it is, else as text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def blocks_note(problem: Problem) -> str:
    """Say that comparing on a trace file is not what the best is judged on."""
    n, own = problem.seeds + problem.held_out, problem.seeds
    text = f"It plays all {n} blocks of the file, also the {own} that the search chose on, which flatter"
    return (
        f"{text}; held_out below is of the other {problem.held_out}."
        if problem.held_out
        else f"{text}."
    )


def compare_command(outcome: Outcome, path: Path) -> str | None:
    """Return the command, for any folder, that compares the best with the system as it is; None if it has no words.

    On held-out seeds; of a trace file on all its blocks, as compare cuts a file into those that it plays. A number of
    tiers is that of both.
    """
    problem = outcome.problem
    if problem.workload in SPEEDS and problem.trace is None:
        return None
    config = ClusterConfig(**(problem.cluster | {TIERS: problem.tiers(outcome.best_params)}))
    default = portable(problem.system)
    options: dict[str, Any] = {"systems": [str(path.absolute()), default], "reference": default}
    if problem.trace is None:
        is_file = problem.workload.endswith(FILE_ENDING)
        workload = str(Path(problem.workload).absolute()) if is_file else problem.workload
        options |= {"workload": workload, "requests": problem.n_requests}
        options |= {"seed": problem.seed + problem.seeds, "seeds": max(1, problem.held_out)}
    else:
        options |= {"trace": str(Path(problem.trace).absolute())}
        options |= {"seed": problem.seed, "seeds": problem.seeds + problem.held_out}
    options |= {"load": problem.load, "rate": problem.rate_per_s, "arrivals": problem.arrivals}
    options |= {"tier_mix": problem.tier_mix, "horizon_s": problem.horizon_s}
    return command_line(options, config)


def save_plots(outcome: Outcome, folder: Path) -> list[Path]:
    """Draw and write history.png, importances.png, slices.png and, of two settings or more, pair.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def new(columns: int = 1, width: float = 8.0, height: float = 4.0) -> tuple[Figure, Any]:
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, figure.subplots(1, columns, squeeze=False)[0]

    keys = [each.key for each in outcome.problem.dimensions]
    drawings = {"history": plots.history, "importances": plots.importances}
    if len(keys) > 1:
        drawings["pair"] = plots.pair
    written = []
    with matplotlib.rc_context({"font.size": 9}):
        for name, draw in drawings.items():
            figure, axes = new()
            draw(outcome, axes[0])
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=120)
        figure, axes = new(len(keys), width=3.0 * len(keys) + 1.0, height=3.4)
        for key, ax in zip(keys, axes, strict=True):
            plots.slice_of(outcome, key, ax)
            if ax is not axes[0]:
                ax.set_ylabel("")
        written.append(folder / "slices.png")
        figure.savefig(written[-1], dpi=120)
    return written
