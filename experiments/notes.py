"""What a reader must know before believing a comparison: warnings of its runs, and its own limits.

Each note is one sentence with the numbers it rests on.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from servegym.experiments.grid import Cell
from servegym.experiments.statistics import LEVEL
from servegym.simulator.config import SCENARIOS, ClusterConfig

LOW_LOAD = 0.6  # scenarios use 0.6, 0.85, 1.0 and 1.15
LOAD_NOISE = 1e-9  # relative; a load computed from a rate is not exact
FEWEST_SEEDS = 10
SHORT_RUN = 10.0  # arrivals should last that many times a request's mean E2E


def notes_of(cells: Sequence[Cell], load: float | None, config: ClusterConfig) -> list[str]:
    """Return all notes: the comparison's own, then the warnings of its runs."""
    n_seeds = len({cell.row["seed"] for cell in cells})
    own = [
        load_note(load),
        rejected_note(cells),
        length_note(cells),
        kv_note(cells, config),
        tiers_note(cells, config.tiers),
        seeds_note(n_seeds),
        multiplicity_note(cells, n_seeds),
        *estimator_notes(cells),
    ]
    return [note for note in own if note] + merged_warnings(cells)


def load_note(load: float | None) -> str | None:
    """Say when the load is too low to separate policies, or too high to have a steady state."""
    if load is None:
        return None
    if load < LOW_LOAD * (1.0 - LOAD_NOISE):
        return (
            f"load {load:.4g} is too low to separate policies: below {LOW_LOAD} hardly anything queues, and "
            "what differs differs little; --load 0.95 makes it queue"
        )
    return overload_note(load)


def overload_note(load: float) -> str | None:
    """Say when more arrives than the cluster sustains, by more than float noise."""
    if load <= 1.0 + LOAD_NOISE:
        return None
    return (
        f"load {load:.4g} is an overload: queues grow through a run, so latencies grow with its "
        "length"
    )


def rejected_note(cells: Sequence[Cell]) -> str | None:
    """Say when requests are rejected on arrival, because no instance could ever hold them."""
    offered = sum(cell.row["offered"] for cell in cells)
    rejected = sum(cell.row["rejected"] - cell.row["admission_rejections"] for cell in cells)
    if not rejected:
        return None
    percent = 100.0 * rejected / offered
    share = f"{percent:.0f}" if percent >= 10.0 else f"{percent:.2g}"
    return (
        f"{share} % of requests fit no instance and are rejected (KV blocks or token budget): "
        "latencies are of the others"
    )


def length_note(cells: Sequence[Cell]) -> str | None:
    """Say when arrivals last so shortly that a run's start and drain weigh on every figure."""
    rows = [cell.row for cell in cells if cell.row["rate_per_s"] and cell.row["e2e_mean_s"]]
    times = [(row["offered"] / row["rate_per_s"], row["e2e_mean_s"]) for row in rows]
    short = [(arrivals_s, e2e_s) for arrivals_s, e2e_s in times if arrivals_s < SHORT_RUN * e2e_s]
    if not short:
        return None
    arrivals_s, e2e_s = max(short, key=lambda pair: pair[1] / pair[0])
    return (
        f"runs are short: requests arrive over {arrivals_s:.0f} s and take {e2e_s:.1f} s on average in the "
        "worst run, so the empty start and the drain weigh; take fewer --seeds of a trace, or more --requests of a "
        "workload"
    )


def kv_note(cells: Sequence[Cell], config: ClusterConfig) -> str | None:
    """Say when memory never ran short, so that policies that look at KV have nothing to win by it."""
    peak = max((cell.peak_kv_share for cell in cells), default=0.0)
    if any(cell.row["preemptions"] or cell.n_blocked_heads for cell in cells):
        return None
    return (
        f"KV never runs short: it peaks at {100 * peak:.0f} % of an instance's blocks, nobody waits for blocks and "
        f"nothing is preempted, so policies cannot differ by how they handle memory; {tighter(config)} makes it short"
    )


def tighter(config: ClusterConfig) -> str:
    """Name the option that leaves an instance fewer KV blocks than it has."""
    blocks = min(config.kv_blocks_of(row) for row in config.fleet_profiles)
    if config.kv_blocks is None and blocks > SCENARIOS["tight"]["kv_blocks"]:
        return "--scenario tight"
    return f"--kv-blocks below {blocks:,}"


def tiers_note(cells: Sequence[Cell], tiers: int) -> str | None:
    """Say when the cluster knows several tiers and the workload uses only one."""
    if tiers == 1:
        return None
    used = [p for p in range(tiers) if any(cell.row[f"tier{p}_offered"] for cell in cells)]
    return f"all requests are of tier {used[0]} of {tiers}" if len(used) == 1 else None


def override_notes(resolved: Mapping[str, Mapping[str, Any]], config: ClusterConfig) -> list[str]:
    """Say where a system goes its own way although the user's config asked for something else."""
    asked = config.model_dump(exclude_defaults=True)
    found = []
    for name, made in resolved.items():
        over = {key: made["config"][key] for key in asked if key in made["config"]}
        if over:
            mine = ", ".join(f"{key}={value}" for key, value in over.items())
            theirs = ", ".join(f"{key}={asked[key]}" for key in over)
            found.append(f"{name} sets {mine} itself, over the cluster's {theirs}")
    return found


def estimator_notes(cells: Sequence[Cell]) -> list[str]:
    """Name what policies know of output lengths, and which systems where that differs."""
    users: dict[str, dict[str, None]] = {}
    for cell in cells:
        users.setdefault(cell.row["estimator"], {})[cell.row["system"]] = None
    return [
        f"{', '.join(systems) if len(users) > 1 else 'policies'} see output lengths predicted by estimator "
        f"{estimator!r}{', which knows the truth' if estimator == 'oracle' else ''}"
        for estimator, systems in users.items()
    ]


def seeds_note(n_seeds: int) -> str | None:
    """Say when seeds are too few."""
    if n_seeds == 1:
        return "one run a system: no intervals and no verdicts; several --seeds give them"
    if n_seeds < FEWEST_SEEDS:
        return (
            f"{n_seeds} seeds are few: intervals are wide, and t assumes normal differences; use 10"
        )
    return None


def multiplicity_note(cells: Sequence[Cell], n_seeds: int) -> str | None:
    """Say what one interval among many is worth."""
    if n_seeds == 1 or len({cell.row["system"] for cell in cells}) == 1:
        return None
    return (
        f"each verdict stands alone at {100 * LEVEL:.0f} %: where nothing differs, 1 in {1 / (1 - LEVEL):.0f} "
        "still says better or worse"
    )


def merged_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return the runs' warnings, those that differ in numbers only as one, with how many runs had it."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for cell in cells:
        for warning in cell.warnings:
            kind = re.sub(r"\d[\d,.]*", "#", warning)
            first.setdefault(kind, f"{warning} ({cell.row['system']}, seed {cell.row['seed']}")
            counts[kind] += 1
    return [f"{text}; {counts[kind]} of {len(cells)} runs)" for kind, text in first.items()]
