"""The options that say what is served: a trace file or a fitted workload, and how fast it arrives."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servegym.commands.arguments import Flag, GivenNumber, Number, Path, Text, WholeNumber, note

if TYPE_CHECKING:
    from servegym.traces import Trace

DEFAULT_REQUESTS = 10_000


@contextmanager
def faults_on_one_line() -> Iterator[None]:
    """Let a fault of several lines, one for each format that was tried, read as a sentence."""
    try:
        yield
    except ValueError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise ValueError("; ".join(lines).replace(":; ", ": ")) from None


@dataclass(kw_only=True)
class WorkloadOptions:
    """What arrives, and when."""

    workload: Text = None
    """A workload, `servegym list workloads`, or a .json that `servegym trace fit` wrote (azure-conv)."""
    trace: Path = None
    """A trace file instead: Azure, Mooncake, Vidur, vLLM or our parquet, told by its content."""
    start_s: Number = None
    """Keep the trace's arrivals from this second on."""
    end_s: Number = None
    """Keep the trace's arrivals before this second."""
    max_rows: WholeNumber = None
    """Read only so many rows of the trace."""
    sort: Flag = False
    """Sort the trace by arrival instead of refusing an unsorted one."""
    load: Number = None
    """Mean rate as a fraction of what the cluster sustains: 0.85 busy, 1 the limit, 1.15 overload."""
    rate: Number = None
    """Mean rate in requests per second instead; neither: the recorded rate."""
    requests: WholeNumber = None
    """Requests drawn from a fitted workload (10,000)."""
    arrivals: Text = None
    """Arrival process of a fitted workload: poisson (default), fitted, gamma:cv=3, weibull:shape=0.5, on-off, ..."""
    tier_mix: Text = None
    """Draw each request's tier, for --tiers of them: uniform, gaussian, enterprise, power-law, fair-..."""
    horizon_s: Number = None
    """Stop at this second; requests in flight then count as unfinished."""
    seed: GivenNumber = 0
    """The seed, or the first of several (0)."""

    def load_trace(self) -> "Trace | None":
        """Read the trace file, saying what was read; None without one. ValueError names the fault."""
        only_traces = {
            "--start-s": self.start_s,
            "--end-s": self.end_s,
            "--max-rows": self.max_rows,
            "--sort": self.sort or None,
        }
        if self.trace is None:
            for option, value in only_traces.items():
                if value is not None:
                    raise ValueError(f"{option} needs --trace")
            return None
        if not self.workload is self.requests is self.arrivals is None:
            raise ValueError(
                "--trace plays a file; leave --workload, --requests and --arrivals out"
            )
        from servegym.traces import load

        with faults_on_one_line():
            trace = load(self.trace, self.sort, self.start_s, self.end_s, self.max_rows)
        if trace.report is not None:
            note(str(trace.report))
        return trace

    @property
    def workload_name(self) -> str:
        """The fitted workload to draw from when there is no trace."""
        return self.workload or "azure-conv"
