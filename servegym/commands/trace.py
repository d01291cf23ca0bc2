"""`servegym trace`: look at a trace file, convert it, fit a workload to it, draw it."""

import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from servegym.commands.arguments import (
    Flag,
    GivenNumber,
    Json,
    Number,
    Path,
    Text,
    WholeNumber,
    note,
    parse,
)
from servegym.commands.workload_options import faults_on_one_line

if TYPE_CHECKING:
    from servegym.traces import Trace

USAGE = """usage: servegym trace {describe,convert,fit,plot} FILE [OPTIONS]

Look at a request log of any known format, told by its content.

  describe  counts, rates, burstiness, lengths, labels
  convert   write our own parquet, or a plain CSV
  fit       fit a workload that traces can be drawn from
  plot      draw arrival rate and lengths

examples:
  servegym trace describe AzureLLMInferenceTrace_conv.csv
  servegym trace plot conversation_trace.jsonl.gz --out mooncake.png

servegym trace describe --help lists the options of an action."""
"""What `servegym trace --help` prints."""

File = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]


@dataclass(kw_only=True)
class ReadOptions:
    """What is read of the file."""

    start_s: Number = None
    """Keep arrivals from this second on."""
    end_s: Number = None
    """Keep arrivals before this second."""
    max_rows: WholeNumber = None
    """Read only so many rows."""
    sort: Flag = False
    """Sort by arrival instead of refusing an unsorted file."""
    rate: Number = None
    """For a file of lengths alone: draw Poisson arrivals at so many requests per second."""
    seed: GivenNumber = 0
    """Seed of what is drawn (0)."""
    spread_s: Number = None
    """Spread requests of equal time over so many seconds (Mooncake 3, BurstGPT 1)."""

    def load(self, file: str, is_brief: bool = False) -> "Trace":
        """Read the file, saying what was read (brief: rows alone); ValueError names the fault."""
        from servegym.traces import load, load_lengths

        if self.rate is None:
            trace = load(file, self.sort, self.start_s, self.end_s, self.max_rows)
        else:
            trace = load_lengths(file, self.rate, self.seed, self.max_rows)
            if self.start_s is not None or self.end_s is not None:
                trace = trace.window(self.start_s, self.end_s)
        if trace.report is not None:
            told = str(trace.report)
            note(told.partition("\n")[0] if is_brief else told)
        return trace if self.spread_s is None else trace.spread_batches(self.seed, self.spread_s)


@dataclass(kw_only=True)
class DescribeOptions:
    """What to describe."""

    file: File
    """A request log."""
    json_: Json = False
    """Print the figures as one JSON document."""
    read: ReadOptions = field(default_factory=ReadOptions)


@dataclass(kw_only=True)
class ConvertOptions:
    """What to convert."""

    file: File
    """A request log."""
    out: Path = None
    """Where to write: .parquet keeps everything, .csv requests and labels."""
    json_: Json = False
    """Print what was written as one JSON document."""
    read: ReadOptions = field(default_factory=ReadOptions)


@dataclass(kw_only=True)
class PlotOptions:
    """What to draw."""

    file: File
    """A request log."""
    out: Path = None
    """Where to write: .png, .svg or .pdf."""
    json_: Json = False
    """Print what was written as one JSON document."""
    read: ReadOptions = field(default_factory=ReadOptions)


@dataclass(kw_only=True)
class FitOptions:
    """What to fit."""

    file: File
    """A request log, a file of lengths alone, or a ServeGen archive."""
    name: Text = None
    """Name of the workload."""
    source: Text = None
    """Where the data is from (the file's name)."""
    licence: Text = None
    """Licence of the data (not stated)."""
    citation: Text = None
    """How to cite the data (not stated)."""
    spread_s: Number = None
    """Spread requests of equal time over so many seconds first (Mooncake 3, BurstGPT 1)."""
    lengths_only: Flag = False
    """Fit lengths only and leave arrival times out."""
    out: Path = None
    """Where to write (NAME.json)."""
    json_: Json = False
    """Print what was written as one JSON document."""


def describe(options: DescribeOptions) -> int:
    """Print the figures of a file."""
    figures = options.read.load(options.file, is_brief=True).describe()  # figures say the rest
    if options.json_:
        print(json.dumps(figures, indent=2, allow_nan=False))
        return 0
    from servegym.traces.description import describe_text

    print(describe_text(figures))
    return 0


def convert(options: ConvertOptions) -> int:
    """Write the file's requests as parquet or CSV."""
    out = needed("--out", options.out)
    if not out.endswith((".parquet", ".csv")):
        raise ValueError(f"--out {out} must end in .parquet or .csv")
    trace = options.read.load(options.file)
    if out.endswith(".csv"):
        trace.to_frame().to_csv(out, index=False)
    else:
        trace.save(out)
    return tell(options.json_, out, {"requests": len(trace), "workload_hash": trace.workload_hash})


def plot(options: PlotOptions) -> int:
    """Draw the file's arrivals and lengths."""
    out = needed("--out", options.out)
    if not out.endswith((".png", ".svg", ".pdf")):
        raise ValueError(f"--out {out} must end in .png, .svg or .pdf")
    trace = options.read.load(options.file)
    from servegym.traces.plot import plot

    plot(trace, out)
    return tell(options.json_, out, {"requests": len(trace)})


def fit(options: FitOptions) -> int:
    """Fit a workload; what is not said of a new one's data is recorded as not stated."""
    name = needed("--name", options.name)
    from servegym.traces import Workload, workload_names

    given = {"source": options.source, "licence": options.licence, "citation": options.citation}
    if name not in workload_names():
        unsaid = {"source": options.file, "licence": "not stated", "citation": "not stated"}
        given = {about: text or unsaid[about] for about, text in given.items()}
    out = options.out or f"{name}.json"
    if not out.endswith(".json"):
        raise ValueError(f"--out {out} must end in .json")
    words = [options.file, "--name", name, "--out", out]
    words += [f"--{about}={text}" for about, text in given.items() if text]
    words += [] if options.spread_s is None else [f"--spread-s={options.spread_s}"]
    words += ["--lengths-only"] if options.lengths_only else []
    with redirect_stdout(StringIO()):
        import_module("servegym.traces.fit").main(words)
    fitted = Workload.from_json(FilePath(out).read_text(encoding="utf-8"))
    code = tell(options.json_, out, {"name": fitted.name, "requests": fitted.n_rows})
    if not options.json_:
        played = shlex.join(["servegym", "compare", "--workload", out])
        print(f"use it: {played} --systems round-robin,least-requests --load 0.95")
    return code


def needed(option: str, given: str | None) -> str:
    """Return the value of an option that must be given."""
    if not given:
        raise ValueError(f"{option} is missing")
    return given


def tell(as_json: bool, out: str, figures: dict[str, Any]) -> int:
    """Say what was written and return the exit code."""
    if as_json:
        print(json.dumps({"wrote": out} | figures, indent=2))
    else:
        print(f"wrote {out}: {figures['requests']:,} requests")
    return 0


Action = tuple[type[Any], Callable[[Any], int], str]

ACTIONS: dict[str, Action] = {
    "describe": (
        DescribeOptions,
        describe,
        """Print counts, rates, burstiness, lengths and labels of a request log.

examples:
  servegym trace describe AzureLLMInferenceTrace_conv.csv
  servegym trace describe BurstGPT_1.csv --end-s 86400 --json""",
    ),
    "convert": (
        ConvertOptions,
        convert,
        """Write a request log as parquet (everything is kept) or as a plain CSV.

examples:
  servegym trace convert conversation_trace.jsonl.gz --spread-s 3 --out mooncake.parquet
  servegym trace convert sharegpt_lengths.csv --rate 5 --seed 1 --out sharegpt.csv""",
    ),
    "fit": (
        FitOptions,
        fit,
        """Fit a workload to a request log, to lengths alone, or to ServeGen's client archive.

examples:
  servegym trace fit mine.csv --name mine    (then: servegym compare --workload mine.json ...)
  servegym trace fit BurstGPT_1.csv --name burst --spread-s 1 --licence "CC BY 4.0" """.rstrip(),
    ),
    "plot": (
        PlotOptions,
        plot,
        """Draw arrival rate over time and the distributions of prompt and output lengths.

examples:
  servegym trace plot AzureLLMInferenceTrace_conv.csv --out azure.png
  servegym trace plot BurstGPT_1.csv --end-s 604800 --out week.svg""",
    ),
}


def run(arguments: Sequence[str]) -> int:
    """Do what the first word asks for."""
    action = arguments[0] if arguments else ""
    if action in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0)
    if action not in ACTIONS:
        from servegym.traces.names import near_match

        asked = f"unknown action {action!r}" if action else "an action is missing"
        raise ValueError(f"{asked}; {near_match(action, ACTIONS)}")
    kind, do, description = ACTIONS[action]
    with faults_on_one_line():
        return do(parse(kind, arguments[1:], f"trace {action}", description))
