"""compare(): several systems on the same traces, over seeds, with paired differences and verdicts.

from servegym.experiments.compare import compare

comparison = compare(["round-robin", "least-requests"], workload="azure-conv", load=0.95)
print(comparison); comparison.save("out")
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from servegym.baselines.offered_rate import check_load_and_rate
from servegym.baselines.saturation import saturation_rate
from servegym.baselines.simulate import with_options
from servegym.baselines.system_file import check_tiers
from servegym.baselines.systems import System, find_system, system_names
from servegym.experiments.blocks import check_seeds
from servegym.experiments.comparison import Comparison
from servegym.experiments.grid import Cell, play_grid
from servegym.experiments.idle_settings import idle_settings, shared_notes
from servegym.experiments.notes import notes_of, override_notes
from servegym.experiments.progress import announce_compilation, bar
from servegym.experiments.rerun import command_line
from servegym.experiments.sources import (
    at_rate,
    find_source,
    mean_rate,
    source_options,
    traces_by_seed,
    with_tiers,
)
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Policy
from servegym.traces import Trace, Workload
from servegym.traces.names import near_match


def compare(
    systems: Sequence[str | Policy | System],
    trace: Trace | str | Path | None = None,
    workload: str | Path | Workload = "azure-conv",
    config: ClusterConfig | None = None,
    load: float | None = None,
    rate_per_s: float | None = None,
    seeds: int = 10,
    n_requests: int = 10_000,
    whole: bool = False,
    arrivals: str | None = None,
    tier_mix: str | None = None,
    horizon_s: float | None = None,
    reference: str | None = None,
    progress: bool = True,
    seed: int = 0,
    command: str | None = None,
    **options: Any,
) -> Comparison:
    """Play every system on every seed's trace and return the Comparison.

    trace: a trace or its file, cut into one block a seed (blocks.py); whole plays all of it once.
    Without one, workload is drawn from, n_requests a seed, with that arrival process ("poisson",
    "fitted", "gamma:cv=3"). tier_mix: draw tiers from that mix (tier_mixes.py), for config.tiers.
    load: mean rate as a fraction of what the cluster sustains; rate_per_s: in requests/s; neither:
    as recorded. reference: the system that differences are taken to, the first by default. seed:
    the first of the seeds. command: for the manifest, where there is none for what was given as an
    object. options: fields of ClusterConfig; what a system sets itself goes over them. Raises
    ValueError for bad input, CellError naming system and seed of a run that failed.
    """
    check_seeds(seeds, seed)
    found = find_systems(systems)
    reference = checked_reference(reference, list(found))
    cluster = with_options(config, options)
    for name in found:
        check_tiers(name, cluster.tiers)
    source = find_source(trace, workload)
    check_load_and_rate(source, load, rate_per_s)
    recorded = traces_by_seed(source, seeds, n_requests, whole, seed, arrivals)
    recorded = with_tiers(recorded, tier_mix, cluster.tiers)
    if progress:
        announce_compilation()
    saturation_per_s = saturation_rate(source, cluster)
    traces = at_rate(recorded, source, load, rate_per_s, saturation_per_s)
    follow = bar(len(found) * len(traces)) if progress else iter
    cells = play_grid(found, traces, cluster, horizon_s, follow)
    rate_played = mean_rate(traces)
    load_played = load
    if load is None and rate_played is not None:
        load_played = rate_played / saturation_per_s
    played = source_options(trace, workload, n_requests)
    if command is None and played is not None and all(isinstance(each, str) for each in systems):
        asked = {"systems": list(found), "reference": reference, **played, "load": load}
        asked |= {"arrivals": arrivals, "tier_mix": tier_mix}
        asked |= {"rate": rate_per_s, "horizon_s": horizon_s, "seed": seed, "whole": whole}
        command = command_line(asked | {"seeds": None if whole else seeds}, cluster)
    resolved = {name: system.manifest(cluster) for name, system in found.items()}
    notes = [*override_notes(resolved, cluster), *notes_of(cells, load_played, cluster)]
    notes += idle_notes(found, cluster, next(iter(traces.values())), tier_mix, cells)
    return Comparison(
        runs=pd.DataFrame([cell.row for cell in cells]),
        reference=reference,
        workload=source.name or "unnamed trace",
        config=cluster,
        load=load_played,
        rate_per_s=rate_played,
        saturation_per_s=saturation_per_s,
        horizon_s=horizon_s,
        notes=tuple(notes),
        command=command,
        resolved=resolved,
    )


def idle_notes(
    found: Mapping[str, System],
    cluster: ClusterConfig,
    trace: Trace,
    tier_mix: str | None,
    cells: Sequence[Cell],
) -> list[str]:
    """Return what to know of settings that do nothing, and in which systems. trace: one of those played."""
    n_holds = dict.fromkeys(found, 0)
    for cell in cells:
        n_holds[cell.row["system"]] += cell.row["holds"]
    return shared_notes(
        {
            name: idle_settings(system.configure(cluster), trace, tier_mix, n_holds[name])
            for name, system in found.items()
        }
    )


def find_systems(systems: Sequence[str | Policy | System]) -> dict[str, System]:
    """Return the systems by name, "all" as all there are; ValueError for none, an unknown one, one named twice."""
    if isinstance(systems, str):
        raise ValueError(f"systems = {systems!r}; must be a list of names")
    wanted = [each for name in systems for each in (system_names() if name == "all" else [name])]
    found: dict[str, System] = {}
    for system in map(find_system, wanted):
        if system.name in found:
            raise ValueError(f"system {system.name!r} is named twice")
        found[system.name] = system
    if not found:
        raise ValueError("systems = []; name at least one")
    return found


def checked_reference(reference: str | None, names: Sequence[str]) -> str:
    """Return the reference system, by default the first; ValueError if it is none of them."""
    if reference is not None and reference not in names:
        raise ValueError(
            f"reference {reference!r} is none of the systems; {near_match(reference, names)}"
        )
    return reference or names[0]
