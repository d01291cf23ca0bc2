"""The tables of the marginal study (marginal_study.py): who is compared, knowing what, and how it is printed.

Differences are paired by seed; in bold where the 95 % interval lies on one side of 0. Everything is Markdown.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servegym.experiments.drift_arms import table
from servegym.experiments.metrics import percent
from servegym.experiments.statistics import Interval, mean_interval, paired_difference, verdict

MARGINAL, *OTHERS = POLICIES = ("marginal", "block", "astrolabe")
WITHOUT_LENGTHS = ("least-requests", "llumnix-dispatch", "power-of-two")
ERRORS = (0.25, 0.5, 1.0)
REMAINING = ("plug-in", "residual")
NO_PREDICTION = {"plug-in": "constant", "residual": "residual"}  # learned from completions alone
# What the policies know, by (error, remaining) as the table says it: the text behind a system's colon.
KNOWN = (
    {("0", "either"): "estimator=oracle"}
    | {
        (f"{error:g}", how): f"estimator=noisy,error={error:g},remaining={how}"
        for error in ERRORS
        for how in REMAINING
    }
    | {("none", how): f"estimator={NO_PREDICTION[how]},remaining={how}" for how in REMAINING}
)
SYSTEMS = (
    *(f"{policy}:{known}" for known in KNOWN.values() for policy in POLICIES),
    *WITHOUT_LENGTHS,
)
MEAN = "e2e_mean_s"
SHOWN = {  # column of the runs: its heading and decimals
    "e2e_p99_s": ("P99 E2E, s", 1),
    "ttft_mean_s": ("mean TTFT, s", 2),
    "ttft_p99_s": ("P99 TTFT, s", 2),
    "preemptions": ("preemptions", 0),
}


class Place:
    """The runs of one workload, scenario and load, by system and measure."""

    def __init__(self, runs: pd.DataFrame, seed: str = "seed") -> None:
        self.runs = runs.sort_values(seed).set_index("system")

    def values(self, system: str, key: str) -> NDArray[np.float64]:
        """Return a measure of a system, one value a seed."""
        return self.runs.loc[[system], key].to_numpy(dtype=np.float64)

    def mean(self, system: str, key: str) -> float:
        """Return the mean over seeds."""
        mean = mean_interval(self.values(system, key)).mean
        assert mean is not None, f"{system} finished no request"
        return mean

    def difference(self, system: str, reference: str, key: str) -> Interval:
        """Return system - reference, paired by seed."""
        return paired_difference(self.values(system, key), self.values(reference, key))


def is_decided(difference: Interval) -> bool:
    """Return whether the interval lies on one side of 0."""
    return verdict(difference, "lower") in ("better", "worse")


def bold(text: str, is_bold: bool) -> str:
    """Return the text, in bold if asked."""
    return f"**{text}**" if is_bold else text


def difference_text(difference: Interval) -> str:
    """Return "+0.12 [+0.07, +0.17]", in bold if decided."""
    text = f"{difference.mean:+.2f}"
    if difference.low is not None and difference.high is not None:
        text += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    return bold(text, is_decided(difference))


def place_table(place: Place) -> str:
    """Return the table of one place: a row for what is known of lengths, and one a system that asks for none."""
    rows = []
    for (error, remaining), known in KNOWN.items():
        reference, *others = (f"{policy}:{known}" for policy in POLICIES)
        row = [error, remaining, f"{place.mean(reference, MEAN):.2f}"]
        for system in (*others, *WITHOUT_LENGTHS):
            row.append(difference_text(place.difference(system, reference, MEAN)))
        for key, (_, decimals) in SHOWN.items():
            texts = [f"{place.mean(reference, key):.{decimals}f}"]
            for system in others:
                difference = place.difference(system, reference, key)
                text = f"{place.mean(system, key):.{decimals}f}"
                texts.append(bold(text, is_decided(difference)))
            row.append(" / ".join(texts))
        rows.append(row)
    for system in WITHOUT_LENGTHS:
        shown = [f"{place.mean(system, key):.{SHOWN[key][1]}f}" for key in SHOWN]
        blank = [""] * len((*OTHERS, *WITHOUT_LENGTHS))
        rows.append([system, "", f"{place.mean(system, MEAN):.2f}", *blank, *shown])
    names = [f"{system} -" for system in (*OTHERS, *WITHOUT_LENGTHS)]
    heads = [heading for heading, _ in SHOWN.values()]
    return table(["error", "remaining", "mean E2E, s", *names, *heads], rows)


def summary_table(places: Mapping[str, Place]) -> str:
    """Return `marginal` - `block` in % of Block's mean E2E, a row a place and a column for what both know."""
    rows = []
    for title, place in places.items():
        row = [title]
        for known in KNOWN.values():
            marginal, block = (f"{policy}:{known}" for policy in POLICIES[:2])
            difference = place.difference(marginal, block, MEAN)
            share = percent(difference.mean, place.mean(block, MEAN))
            row.append(bold(f"{share:+.1f}", is_decided(difference)))
        rows.append(row)
    heads = [", ".join(key) for key in KNOWN]
    return table(["marginal - block, %", *heads], rows)


def change_table(
    places: Mapping[str, Place],
    corner: str,
    pairs: Mapping[str, tuple[str, str]],
    policies: Sequence[str],
) -> str:
    """Return how mean E2E changes between two states of knowledge, a column a pair (known, reference)."""
    rows = [
        [f"{title}, {policy}"]
        + [
            difference_text(place.difference(f"{policy}:{known}", f"{policy}:{reference}", MEAN))
            for known, reference in pairs.values()
        ]
        for title, place in places.items()
        for policy in policies
    ]
    return table([corner, *pairs], rows)


def report(runs: pd.DataFrame) -> str:
    """Return all tables as Markdown."""
    runs = runs.sort_values(["workload", "scenario", "load"])
    titles = [
        f"{workload}, {scenario}, load {load:g}"
        for workload, scenario, load in zip(
            runs["workload"], runs["scenario"], runs["load"], strict=True
        )
    ]
    places = {str(title): Place(own) for title, own in runs.groupby(titles, sort=False)}
    parts = ["### Summary: mean E2E against Block's", summary_table(places)]
    for title, place in places.items():
        parts += [f"### {title}", place_table(place)]
    truth, *others = KNOWN
    costs = {f"{error}, {how}": (KNOWN[error, how], KNOWN[truth]) for error, how in others}
    gains = {
        error: (KNOWN[error, "residual"], KNOWN[error, how])
        for error, how in others
        if how == "plug-in"
    }
    parts += [
        "### What length errors cost `marginal`",
        change_table(places, "mean E2E - with true lengths, s", costs, POLICIES[:1]),
        "### What residual remaining lengths add",
        change_table(places, "mean E2E, residual - plug-in, s", gains, POLICIES),
    ]
    return "\n\n".join(parts)
