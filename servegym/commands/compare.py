"""`servegym compare`: several systems on the same traces, with intervals and verdicts."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from servegym.commands.arguments import (
    Flag,
    Json,
    Names,
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

examples:
  servegym compare --systems round-robin,least-requests --instances 8 --load 0.95
  servegym compare --systems random,power-of-two:d=3 --trace trace.csv --load 0.9 --out out/
  servegym compare --systems least-requests,least-kv --scenario tight --load 1 --json"""

DEFAULT_SEEDS = 10


@dataclass(kw_only=True)
class Options:
    """What to compare."""

    systems: Names = None
    """Systems to compare, `servegym list systems`; parameters follow a colon: power-of-two:d=3."""
    reference: Text = None
    """The system that differences are taken to (the first)."""
    seeds: WholeNumber = None
    """Seeds, each another block or draw (10)."""
    whole: Flag = False
    """Play the trace file once, without intervals."""
    out: Path = None
    """Folder for runs.parquet, table.csv, comparison.png and manifest.json."""
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
    served = options.served
    config = options.cluster.to_config()
    trace = served.load_trace()
    from servegym.experiments.compare import compare

    comparison = compare(
        options.systems,
        trace,
        served.workload_name,
        config,
        load=served.load,
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
    if options.json_:
        print(json.dumps(comparison.to_dict(), indent=2, allow_nan=False))
    else:
        comparison.print()
    if options.out is not None:
        for path in comparison.save(options.out):
            note(f"wrote {path}")
    return 0
