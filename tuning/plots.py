"""Pictures of a study; every function returns the matplotlib axes it drew on.

history(outcome)        value of every trial, and the best so far
importances(outcome)    how much each setting matters
slice_of(outcome, key)  value against one setting
pair(outcome)           where trials lay in the two settings that matter most
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from servegym.experiments.plot_axes import given_or_new, label, legend_beside, say
from servegym.traces.palette import BLACK, BLUE, GREY, ORANGE, VERMILION
from servegym.tuning.outcome import Outcome, is_done, value_so_far
from servegym.tuning.spaces import Dimension

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNS = {TrialState.COMPLETE: (BLUE, "o"), TrialState.PRUNED: (GREY, "x")}
SPREAD = 0.15  # of choices, to the sides, so that trials do not hide each other
TOP_SHARE = 0.95  # of trials that an axis shows; a few very bad ones would flatten the rest


def history(outcome: Outcome, ax: "Axes | None" = None) -> "Axes":
    """Draw the mean over seeds of every trial in order (x), those given up too, and the best so far."""
    ax = given_or_new(ax)
    label(ax, f"{heading(outcome)}: history", about(outcome), "trial", value_label(outcome))
    trials = drawn(outcome.trials)
    if not trials:
        say(ax, "no trial has a value")
        return ax
    scatter(ax, trials, [trial.number for trial in trials])
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if complete:
        best = np.minimum if outcome.objective.better == "lower" else np.maximum
        so_far = best.accumulate(np.array([trial.value for trial in complete], dtype=np.float64))
        numbers = [trial.number for trial in complete]
        ax.step(numbers, so_far, where="post", color=BLACK, label="best so far")
    mark_default(ax, outcome)
    limit(ax, outcome, trials)
    legend_beside(ax)
    return ax


def importances(outcome: Outcome, ax: "Axes | None" = None) -> "Axes":
    """Draw a bar for each setting: its share of what tells the best tenth of trials from all."""
    ax = given_or_new(ax)
    subtitle = f"PED-ANOVA over {outcome.tally.done} trials"
    label(ax, f"{heading(outcome)}: what matters", subtitle, "share", "")
    if not outcome.importances:
        say(ax, "too few trials to tell")
        return ax
    names = list(outcome.importances)[::-1]
    values = [outcome.importances[name] for name in names]
    ax.barh(names, values, color=BLUE)
    for y, value in enumerate(values):
        ax.annotate(
            f"{value:.2f}", (value, y), xytext=(3, 0), textcoords="offset points", va="center"
        )
    ax.set_xlim(0.0, 1.1 * max(values))
    return ax


def slice_of(outcome: Outcome, key: str, ax: "Axes | None" = None) -> "Axes":
    """Draw value (y) against one setting (x), all others as they happened to be. ValueError for an unknown one."""
    dimension = dimension_of(outcome, key)
    ax = given_or_new(ax)
    label(ax, key, "", key, value_label(outcome))
    trials = [trial for trial in drawn(outcome.trials) if key in trial.params]
    scatter(ax, trials, positions(dimension, trials))
    scale(ax, dimension)
    if outcome.best is not None:
        mark_best(ax, [outcome.best], positions(dimension, [outcome.best]))
    mark_default(ax, outcome)
    limit(ax, outcome, trials)
    return ax


def pair(outcome: Outcome, ax: "Axes | None" = None) -> "Axes":
    """Draw complete trials in the two settings that matter most, coloured by value."""
    from matplotlib.colors import Normalize

    first, second = (dimension_of(outcome, key) for key in most_important(outcome))
    ax = given_or_new(ax)
    label(
        ax,
        f"{heading(outcome)}: {first.key} and {second.key}",
        about(outcome),
        first.key,
        second.key,
    )
    trials = [trial for trial in outcome.trials if trial.state == TrialState.COMPLETE]
    if not trials:
        say(ax, "no trial is complete")
        return ax
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    x, y = positions(first, trials), positions(second, trials)
    low, high = shown_range(outcome, values)
    drawn_at = ax.scatter(
        x, y, c=values, cmap="viridis", norm=Normalize(low, high), s=30, edgecolors="none"
    )
    scale(ax, first)
    scale(ax, second, is_y=True)
    if outcome.best is not None:
        best = [outcome.best]
        ax.scatter(
            positions(first, best),
            positions(second, best),
            marker="*",
            s=200,
            facecolors="none",
            edgecolors=VERMILION,
            label="best",
        )
        ax.legend(loc="upper right", frameon=False, fontsize=9)
    bar = ax.figure.colorbar(drawn_at, ax=ax, extend="both")
    bar.set_label(value_label(outcome))
    return ax


def most_important(outcome: Outcome) -> tuple[str, str]:
    """Return the keys of the two settings that matter most; without importances the first two. ValueError below two."""
    keys = [each.key for each in outcome.problem.dimensions]
    ranked = list(outcome.importances) if outcome.importances else keys
    if len(ranked) < 2:
        raise ValueError(f"only {keys[0]} was searched; a pair needs two settings")
    return ranked[0], ranked[1]


def dimension_of(outcome: Outcome, key: str) -> Dimension:
    """Return the dimension of a key; ValueError if it was not searched."""
    for each in outcome.problem.dimensions:
        if each.key == key:
            return each
    raise ValueError(
        f"{key} was not searched; only {', '.join(e.key for e in outcome.problem.dimensions)}"
    )


def drawn(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that have a value: complete, or given up."""
    return [trial for trial in trials if is_done(trial) and value_so_far(trial) is not None]


def positions(dimension: Dimension, trials: Sequence[FrozenTrial]) -> list[float]:
    """Return where trials stand on a setting's axis; choices are spread a little, by the trial's number."""
    values = [trial.params[dimension.key] for trial in trials]
    if dimension.kind != "choice":
        return [float(value) for value in values]
    golden = [(trial.number * 0.618) % 1.0 - 0.5 for trial in trials]
    return [
        dimension.choices.index(str(value)) + 2 * SPREAD * offset
        for value, offset in zip(values, golden, strict=True)
    ]


def scatter(ax: "Axes", trials: Sequence[FrozenTrial], x: Sequence[float]) -> None:
    """Draw trials by state, at their mean so far."""
    names = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "given up: mean so far"}
    for state, (colour, marker) in SIGNS.items():
        chosen = [(p, value_so_far(t)) for p, t in zip(x, trials, strict=True) if t.state == state]
        if chosen:
            ax.scatter(
                *zip(*chosen, strict=True), color=colour, marker=marker, s=22, label=names[state]
            )


def mark_best(ax: "Axes", trials: Sequence[FrozenTrial], x: Sequence[float]) -> None:
    """Draw a star at the best trial."""
    y = np.array([value_so_far(trial) for trial in trials], dtype=np.float64)
    ax.scatter(
        x, y, marker="*", s=180, facecolors="none", edgecolors=VERMILION, label="best", zorder=3
    )


def mark_default(ax: "Axes", outcome: Outcome) -> None:
    """Draw a line at the default's value."""
    if outcome.tuning is not None:
        value = float(np.mean(outcome.tuning.default))
        ax.axhline(value, color=ORANGE, linestyle="--", linewidth=1.2, label="default")


def limit(ax: "Axes", outcome: Outcome, trials: Sequence[FrozenTrial]) -> None:
    """Leave the worst trials out of the axis, marked at its edge."""
    values = np.array([value_so_far(trial) for trial in trials], dtype=np.float64)
    if outcome.tuning is not None:
        values = np.append(values, np.mean(outcome.tuning.default))
    low, high = shown_range(outcome, values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    ax.set_ylim(low - margin, high + margin)
    n_beyond = int(((values < low) | (values > high)).sum())
    if n_beyond:
        ax.annotate(
            f"{n_beyond} worse, beyond",
            (0.99, 0.98 if outcome.objective.better == "lower" else 0.02),
            xycoords="axes fraction",
            ha="right",
            va="top" if outcome.objective.better == "lower" else "bottom",
            fontsize=8,
            color="#444444",
        )


def shown_range(outcome: Outcome, values: np.ndarray) -> tuple[float, float]:
    """Return the values that an axis shows: all but the worst twentieth, where these lie far off."""
    low, high = float(values.min()), float(values.max())
    if outcome.objective.better == "lower":
        most = float(np.quantile(values, TOP_SHARE))
        high = high if high - low <= 2 * (most - low) else most
    else:
        least = float(np.quantile(values, 1 - TOP_SHARE))
        low = low if high - low <= 2 * (high - least) else least
    return low, high


def scale(ax: "Axes", dimension: Dimension, is_y: bool = False) -> None:
    """Set an axis to a setting's range or choices."""
    if dimension.kind == "choice":
        ticks = range(len(dimension.choices))
        (ax.set_yticks if is_y else ax.set_xticks)(ticks, dimension.choices)
        (ax.set_ylim if is_y else ax.set_xlim)(-0.5, len(dimension.choices) - 0.5)
        return
    if dimension.is_log:
        (ax.set_yscale if is_y else ax.set_xscale)("log")
        ends = dimension.low / 1.1, dimension.high * 1.1
    else:
        margin = 0.03 * (dimension.high - dimension.low)
        ends = dimension.low - margin, dimension.high + margin
    (ax.set_ylim if is_y else ax.set_xlim)(*ends)


def value_label(outcome: Outcome) -> str:
    """Return the objective, its unit, and which way is better."""
    objective = outcome.objective
    return f"{objective.name} [{objective.unit}], {objective.better} is better"


def heading(outcome: Outcome) -> str:
    """Return the study's name."""
    return outcome.name


def about(outcome: Outcome) -> str:
    """Return what was played."""
    problem = outcome.problem
    load = f", load {problem.load:g}" if problem.load is not None else ""
    source = problem.trace or problem.workload
    return (
        f"{problem.system} on {source}{load}; means over {problem.seeds} seeds of "
        f"{problem.n_requests:,} requests"
    )
