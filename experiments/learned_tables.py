"""The tables of the learned study (learned_study.py): who plays, knowing what, and how it is printed.

A place is a workload, scenario, fleet size, load and what is known of lengths. Differences are learned - other, paired
by seed: below 0 the learned dispatcher is better; in bold where the 95 % interval lies on one side of 0. The best rival
of a place is the system with the least mean E2E of those that know as much. Everything is Markdown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from servegym.experiments.drift_arms import table
from servegym.experiments.marginal_tables import MEAN, Place, bold, difference_text, is_decided
from servegym.experiments.metrics import percent
from servegym.experiments.statistics import Interval, verdict

WITHOUT_LENGTHS = ("least-requests", "power-of-two", "llumnix-dispatch")
WHAT_IF = ("astrolabe", "block", "marginal")
# What is known of lengths: as the what-if systems are told it, plug-in and residual, and as a learned policy is.
PREDICTED, UNKNOWN = "error .5", "none"
TOLD = {
    PREDICTED: {
        "plug-in": "estimator=noisy,error=0.5,remaining=plug-in",
        "residual": "estimator=noisy,error=0.5,remaining=residual",
    },
    UNKNOWN: {
        "plug-in": "estimator=constant,remaining=plug-in",
        "residual": "estimator=residual,remaining=residual",
    },
}
TOLD_LEARNED = {PREDICTED: "estimator=noisy,error=0.5", UNKNOWN: "estimator=constant"}
LEARNED = "learned:"

METRICS = {  # column of the runs: its heading and decimals
    MEAN: ("mean E2E", 2),
    "e2e_p99_s": ("P99 E2E", 1),
    "ttft_mean_s": ("mean TTFT", 2),
    "ttft_p99_s": ("P99 TTFT", 1),
}
KEYS = (*METRICS, "slo_attainment", "preemptions")
PLACE = ["workload", "scenario", "length", "instances", "load"]


def rivals(length: str) -> dict[str, str]:
    """Return the systems that a learned one is set beside, by the name that tables use."""
    named = {name: name for name in WITHOUT_LENGTHS}
    for how, told in TOLD[length].items():
        named |= {f"{policy}, {how}": f"{policy}:{told}" for policy in WHAT_IF}
    return named


def learned_system(file: str, length: str) -> str:
    """Return a learned dispatcher as a system that knows so much of lengths."""
    return f"{LEARNED}{file},{TOLD_LEARNED[length]}"


def file_of(system: str) -> str:
    """Return the file of a learned system."""
    return system.removeprefix(LEARNED).partition(",")[0]


@dataclass(frozen=True)
class Spot:
    """One place and its runs."""

    workload: str
    scenario: str
    length: str
    instances: int
    load: float
    place: Place

    @property
    def rivals(self) -> dict[str, str]:
        """The rivals that have played, by the name that tables use."""
        played = set(self.place.runs.index)
        return {name: system for name, system in rivals(self.length).items() if system in played}

    @property
    def best(self) -> str:
        """The rival with the least mean E2E, by the name that tables use."""
        return min(self.rivals, key=lambda name: self.place.mean(self.rivals[name], MEAN))

    def has(self, file: str) -> bool:
        """Return whether a learned dispatcher has played here."""
        return learned_system(file, self.length) in set(self.place.runs.index)

    def difference(self, file: str, rival: str, key: str = MEAN) -> Interval:
        """Return learned - rival, paired by seed."""
        system = learned_system(file, self.length)
        return self.place.difference(system, self.rivals[rival], key)

    def ratio(self, file: str, rival: str, key: str = MEAN) -> float:
        """Return learned - rival in % of the rival's mean."""
        share = percent(
            self.difference(file, rival, key).mean, self.place.mean(self.rivals[rival], key)
        )
        assert share is not None
        return share


def spots_of(runs: pd.DataFrame) -> list[Spot]:
    """Return the places in the order of the tables; the workload of a file is called by its stem."""
    runs = runs.assign(workload=[Path(str(each)).stem for each in runs["workload"]])
    found = []
    for key, own in runs.sort_values(PLACE).groupby(PLACE, sort=False):
        workload, scenario, length, instances, load = cast(tuple[Any, ...], key)
        own = pairs_of(own)
        if own.empty:
            continue
        found.append(
            Spot(
                str(workload),
                str(scenario),
                str(length),
                int(instances),
                float(load),
                Place(own, seed="played_seed"),
            )
        )
    return found


def pairs_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the seeds that all systems of a place have played: of a study under way, not all are."""
    played = runs.groupby("played_seed")["system"].transform("nunique")
    return runs.loc[played == runs["system"].nunique(), :]


def counts_table(spots: Sequence[Spot], files: Sequence[str], key: str = MEAN) -> str:
    """Return how often each learned dispatcher is better, the same or worse in a metric than the best rival."""
    rows = []
    for file in files:
        for scenario in dict.fromkeys(spot.scenario for spot in spots):
            own = [spot for spot in spots if spot.scenario == scenario and spot.has(file)]
            differences = [spot.difference(file, spot.best, key) for spot in own]
            ratios = [spot.ratio(file, spot.best, key) for spot in own]
            if own:
                rows.append([file_stem(file), scenario, *counted(differences, ratios)])
    return table(["learned", "scenario", *COUNTED], rows)


COUNTED = ("places", "better", "same", "worse", "mean, %", "range, %")


def counted(differences: Sequence[Interval], ratios: Sequence[float]) -> list[str]:
    """Return the cells under COUNTED for differences of which less is better, and for them in %."""
    verdicts = [verdict(difference, "lower") for difference in differences]
    better, worse = verdicts.count("better"), verdicts.count("worse")
    return [
        str(len(verdicts)),
        f"{better} ({100 * better / len(verdicts):.0f} %)",
        str(len(verdicts) - better - worse),
        str(worse),
        f"{np.mean(ratios):+.1f}",
        f"{min(ratios):+.1f} .. {max(ratios):+.1f}",
    ]


def every_rival_table(spots: Sequence[Spot], files: Sequence[str]) -> str:
    """Return in how many places each learned dispatcher is better, the same and worse in mean E2E than each rival."""
    names = list(dict.fromkeys(name for spot in spots for name in spot.rivals))
    rows = []
    for file in files:
        row = [file_stem(file)]
        for name in names:
            own = [spot for spot in spots if name in spot.rivals and spot.has(file)]
            found = [verdict(spot.difference(file, name), "lower") for spot in own]
            better, worse = found.count("better"), found.count("worse")
            row.append(f"{better}, {len(found) - better - worse}, {worse}")
        rows.append(row)
    return table(["learned", *(f"- {name}" for name in names)], rows)


def against_first_table(spots: Sequence[Spot], files: Sequence[str]) -> str:
    """Return how often the others are better, the same or worse in mean E2E than the first file, by length."""
    first, *others = files
    rows = []
    for file in others:
        for length in dict.fromkeys(spot.length for spot in spots):
            own = [s for s in spots if s.length == length and s.has(file) and s.has(first)]
            system, base = (learned_system(each, length) for each in (file, first))
            differences = [spot.place.difference(system, base, MEAN) for spot in own]
            ratios = [
                100.0 * (spot.place.mean(system, MEAN) / spot.place.mean(base, MEAN) - 1.0)
                for spot in own
            ]
            if own:
                rows.append([file_stem(file), length, *counted(differences, ratios)])
    return table(["learned", "lengths", *COUNTED], rows)


def file_stem(file: str) -> str:
    """Return what tables call a checkpoint."""
    return Path(file).stem


def best_table(spots: Sequence[Spot], files: Sequence[str]) -> str:
    """Return every learned dispatcher's difference in mean E2E to the best rival, in %, a row a place."""
    rows = []
    for spot in spots:
        best = spot.best
        row = [
            f"{spot.workload}, {spot.scenario}, {spot.length}, {spot.instances}, {spot.load:g}",
            best,
            f"{spot.place.mean(spot.rivals[best], MEAN):.2f}",
        ]
        for file in files:
            text = ""
            if spot.has(file):
                is_bold = is_decided(spot.difference(file, best))
                text = bold(f"{spot.ratio(file, best):+.1f}", is_bold)
            row.append(text)
        rows.append(row)
    header = ["workload, scenario, lengths, instances, load", "best rival", "its mean E2E, s"]
    return table([*header, *(f"{file_stem(file)}, %" for file in files)], rows)


def metric_table(spots: Sequence[Spot], file: str, key: str) -> str:
    """Return learned - rival in one metric, a row a fleet size and load, a column a rival."""
    names = list(spots[0].rivals)
    rows = []
    for spot in spots:
        mean = spot.place.mean(learned_system(file, spot.length), key)
        row = [f"{spot.instances}, {spot.load:g}", f"{mean:.{METRICS[key][1]}f}"]
        row += [difference_text(spot.difference(file, name, key)) for name in names]
        rows.append(row)
    return table(["instances, load", "learned", *(f"- {name}" for name in names)], rows)


def groups_of(spots: Sequence[Spot]) -> Mapping[str, list[Spot]]:
    """Return the places by workload, scenario and what is known of lengths."""
    groups: dict[str, list[Spot]] = {}
    for spot in spots:
        title = f"{spot.workload}, {spot.scenario}, lengths {spot.length}"
        groups.setdefault(title, []).append(spot)
    return groups


def report(runs: pd.DataFrame, files: Sequence[str]) -> str:
    """Return all tables as Markdown: counts, all files against the best rival, and the first one in full."""
    spots = spots_of(runs)
    if not files:
        raise ValueError("learned = (); name one dispatcher at least")
    parts = []
    for key, (heading, _) in METRICS.items():
        parts += [
            f"### {heading[0].upper()}{heading[1:]} against the best rival",
            counts_table(spots, files, key),
        ]
    parts += [
        "### Mean E2E against every rival: places better, the same, worse",
        every_rival_table(spots, files),
    ]
    if len(files) > 1:
        title = f"### Mean E2E against {file_stem(files[0])}"
        parts += [title, against_first_table(spots, files)]
    parts += ["### Place by place: mean E2E", best_table(spots, files)]
    for title, own in groups_of([spot for spot in spots if spot.has(files[0])]).items():
        for key, (heading, _) in METRICS.items():
            parts += [
                f"### {file_stem(files[0])}: {heading}, s: {title}",
                metric_table(own, files[0], key),
            ]
    return "\n\n".join(parts)
