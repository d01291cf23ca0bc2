"""`servegym compare`: several systems on the same traces, with intervals and verdicts."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from servegym.commands.arguments import (
    Flag,
    Json,
    Names,
    Numbers,
    Path,
    Text,
    WholeNumber,
    make_folder,
    note,
    parse,
)
from servegym.commands.cluster_options import ClusterOptions
from servegym.commands.workload_options import DEFAULT_REQUESTS, WorkloadOptions

DESCRIPTION = """Run systems on the same traces and say which differences are more than chance.

Every seed plays its own block of the trace file, or its own draw of the fitted workload; all
systems play the same. Differences are taken within each seed, to the first system named.
Several --workloads or --loads make a grid: one comparison for each pair. --check plays the grid
quickly, only to see that every system serves every request once; it fails if one does not.

examples:
  servegym compare --systems round-robin,least-requests --instances 8 --load 0.95
  servegym compare --systems random,power-of-two:d=3 --trace trace.csv --load 0.9 --out out/
  servegym compare --systems least-requests,least-kv --scenario tight --load 1 --json
  servegym compare --systems all --workloads all --loads .6,.85,1,1.15 --check"""

DEFAULT_SEEDS = 10


@dataclass(kw_only=True)
class Options:
    """What to compare."""

    systems: Names = None
    """Systems to compare, `servegym list systems`, or all; parameters and parts follow a colon: power-of-two:d=3."""
    workloads: Names = None
    """Several workloads, or all, instead of --workload."""
    loads: Numbers = None
    """Several loads instead of --load (with --check .6,.85,1,1.15)."""
    check: Flag = False
    """Play short runs, check that requests are conserved in each, and exit with 1 where they are not."""
    reference: Text = None
    """The system that differences are taken to (the first)."""
    seeds: WholeNumber = None
    """Seeds, each another block or draw (10; with --check 1)."""
    whole: Flag = False
    """Play the trace file once, without intervals."""
    out: Path = None
    """Folder for runs.parquet, table.csv, comparison.png and manifest.json, of a grid one folder a pair."""
    json_: Json = False
    """Print one JSON document instead of the table."""
    served: WorkloadOptions = field(default_factory=WorkloadOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def run(arguments: Sequence[str]) -> int:
    """Compare, print, and save where asked to."""
    options = parse(Options, arguments, "compare", DESCRIPTION)
    if options.whole and options.seeds is not None:
        raise ValueError("--whole plays the file once; leave --seeds out")
    if not options.systems:
        raise ValueError("--systems is missing; name some of `servegym list systems`")
    make_folder(options.out)
    return check(options) if options.check else compare_all(options, arguments)


def compare_all(options: Options, arguments: Sequence[str]) -> int:
    """Compare on every workload at every load: print each, and save where asked to."""
    served = options.served
    config = options.cluster.to_config()
    loads, workloads = loads_of(options), workloads_of(options)
    trace = served.load_trace()
    from servegym.experiments.compare import compare

    is_grid = options.loads is not None or options.workloads is not None
    documents = []
    for workload in workloads:
        for load in loads:
            comparison = compare(
                options.systems or [],
                trace,
                workload,
                config,
                load=load,
                rate_per_s=served.rate,
                seeds=DEFAULT_SEEDS if options.seeds is None else options.seeds,
                n_requests=DEFAULT_REQUESTS if served.requests is None else served.requests,
                whole=options.whole,
                arrivals=served.arrivals,
                tier_mix=served.tier_mix,
                horizon_s=served.horizon_s,
                reference=options.reference,
                seed=served.seed,
                command=shlex.join(["servegym", "compare", *arguments]),
            )
            documents.append(comparison.to_dict())
            if not options.json_:
                comparison.print()
                print(end="\n" if is_grid else "")
            if options.out is not None:
                part = f"{comparison.workload}_load_{load:g}" if is_grid and load else ""
                for path in comparison.save(os.path.join(options.out, part)):
                    note(f"wrote {path}")
    if options.json_:
        document = documents if is_grid else documents[0]
        print(json.dumps(document, indent=2, allow_nan=False))
    return 0


def check(options: Options) -> int:
    """Play every system on every workload at every load; 1 if any run fails or loses a request."""
    served = options.served
    for name, value in (
        ("--rate", served.rate),
        ("--whole", options.whole),
        ("--out", options.out),
    ):
        if value not in (None, False):
            raise ValueError(f"--check plays short runs at --loads; leave {name} out")
    config = options.cluster.to_config()
    trace = served.load_trace()
    from servegym.baselines.offered_rate import check_load_and_rate
    from servegym.experiments.check import LOADS, REQUESTS, Check, check_groups
    from servegym.experiments.compare import find_systems
    from servegym.experiments.progress import announce_compilation
    from servegym.experiments.sources import find_source

    loads = LOADS if options.loads is None and served.load is None else loads_of(options)
    sources = [find_source(trace, workload) for workload in workloads_of(options)]
    for load in loads:
        check_load_and_rate(sources[0], load, None)
    found = find_systems(options.systems or [])
    announce_compilation()
    done = Check()
    for group in check_groups(
        found,
        sources,
        [load for load in loads if load is not None],
        config,
        1 if options.seeds is None else options.seeds,
        REQUESTS if served.requests is None else served.requests,
        served.seed,
        served.arrivals,
        served.tier_mix,
        served.horizon_s,
    ):
        done.groups.append(group)
        print(group, file=sys.stderr if options.json_ else sys.stdout, flush=True)
    if options.json_:
        print(json.dumps(done.to_dict(), indent=2, allow_nan=False))
    else:
        print(f"\n{done.table()}\n")
        print(*done.failures, done.verdict(), sep="\n")
    return 1 if done.failures else 0


def loads_of(options: Options) -> list[float | None]:
    """Return the loads to play at; None for none asked for."""
    if options.loads is None:
        return [options.served.load]
    if options.served.load is not None or options.served.rate is not None:
        raise ValueError("--loads names all loads; leave --load and --rate out")
    return list(options.loads)


def workloads_of(options: Options) -> list[str]:
    """Return the names of the workloads to draw from (of a trace: one, that is not looked at)."""
    if options.workloads is None:
        return [options.served.workload_name]
    if options.served.workload is not None or options.served.trace is not None:
        raise ValueError("--workloads names all workloads; leave --workload and --trace out")
    from servegym.traces import workload_names

    return workload_names() if options.workloads == ["all"] else options.workloads
