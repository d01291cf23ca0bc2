"""Serve study: learned serving against strict priority and weighted queues, where there is something to decide and not.

    python -m servegym.experiments.serve_study --learned serve-goodput
    python -m servegym.experiments.serve_study --learned serve-goodput out/serve-0 --seeds 10 --requests 20000
    python -m servegym.experiments.serve_study --places 0 --seeds 100

Four instances, four tiers (enterprise mix), default SLO and weights, pull. Shown: the share of weight, 2^-tier a
request, that met its SLO, and paired differences; in bold where the 95 % interval lies on one side of 0. Source: ours;
docs/serve.md has the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro

from servegym.experiments.compare import compare
from servegym.experiments.drift_arms import table
from servegym.experiments.learned_tables import file_stem
from servegym.experiments.marginal_tables import bold
from servegym.experiments.statistics import Interval, paired_difference, verdict

RIVALS = {
    "strict": "least-requests:queue=strict-priority",
    "weighted": "least-requests:queue=weighted",
}
CLUSTER: dict[str, Any] = {
    "instances": 4,
    "tiers": 4,
    "queue_by": "tier",
    "max_local_waiting": 0,
    "scenario": "tight",
}
FEW_SEATS: dict[str, Any] = {"scenario": "default", "max_num_seqs": 32}  # Serve-v0's default
Place = tuple[str, str, float, dict[str, Any]]  # workload, arrivals, load, more
PLACES: tuple[Place, ...] = (
    ("azure-conv", "poisson", 0.95, {}),
    ("sharegpt", "poisson", 0.95, {}),
    ("azure-conv", "gamma:cv=3", 0.95, {}),
    ("sharegpt", "gamma:cv=3", 0.95, {}),
    ("azure-conv", "fitted", 0.95, {}),
    ("azure-conv", "poisson", 1.05, {}),
    ("azure-conv", "poisson", 1.05, FEW_SEATS),
    ("sharegpt", "poisson", 1.05, FEW_SEATS),
)
SHARE = "weighted_slo_attainment"


@dataclass(kw_only=True)
class Options:
    """What to play."""

    learned: tuple[str, ...] = ("serve-goodput",)
    """Serve checkpoints: shipped names or files."""
    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many seeds, from 0 on."""
    requests: Annotated[int, tyro.conf.arg(metavar="N")] = 20_000
    """Requests a seed."""
    places: tuple[int, ...] = tuple(range(len(PLACES)))
    """Rows of PLACES, from 0."""

    def chosen_places(self) -> list[Place]:
        """Return what is played; ValueError for a place that is none."""
        for k in self.places:
            if not 0 <= k < len(PLACES):
                raise ValueError(f"places = {k}; must be in 0 .. {len(PLACES) - 1}")
        return [PLACES[k] for k in self.places]


def difference_text(difference: Interval) -> str:
    """Return "+.0434 [+.0293, +.0575]", in bold if decided."""
    text = f"{difference.mean:+.4f}"
    if difference.low is not None and difference.high is not None:
        text += f" [{difference.low:+.4f}, {difference.high:+.4f}]"
    return bold(text, verdict(difference, "higher") in ("better", "worse"))


def rows_of(options: Options) -> list[list[str]]:
    """Return a row a place and checkpoint."""
    systems = {file_stem(file): f"learned:{file}" for file in options.learned}
    rows = []
    for workload, arrivals, load, more in options.chosen_places():
        runs = compare(
            [*RIVALS.values(), *systems.values()],
            workload=workload,
            arrivals=arrivals,
            load=load,
            tier_mix="enterprise",
            seeds=options.seeds,
            n_requests=options.requests,
            progress=False,
            **CLUSTER | more,
        ).runs
        shares = runs.pivot(index="seed", columns="system", values=SHARE)
        seats = f"{more['max_num_seqs']} seats" if more else "tight"
        for name, system in systems.items():
            own = shares[system].to_numpy(dtype=np.float64)
            others = [shares[each].to_numpy(dtype=np.float64) for each in RIVALS.values()]
            row = [f"{workload}, {seats}, {load:g}, {arrivals}", name]
            row += [f"{each.mean():.4f}" for each in (*others, own)]
            rows.append(row + [difference_text(paired_difference(own, each)) for each in others])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table as Markdown."""
    options = tyro.cli(Options, args=arguments, description=__doc__)
    heads = [*RIVALS, "learned", *(f"- {name}" for name in RIVALS)]
    print(table(["place", "checkpoint", *heads], rows_of(options)))


if __name__ == "__main__":
    main()
