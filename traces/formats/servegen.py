"""ServeGen client data: no request log, so refused by name with what to use instead.

Packed (tar) or unpacked, it is one pair of files for each client: chunk-N-trace.csv, the rate and
the distribution of inter-arrival times in windows of 600 s, and chunk-N-dataset.json, histograms of
lengths. Source: github.com/alibaba/ServeGen (Xiang et al., arXiv 2505.09999).
"""

import re

CLIENT_FILE = re.compile(r"chunk-\d+-(trace\.csv|dataset\.json)")
RATES_HEADER = ("window_start_s", "_req_per_s")
ADVICE = "fit a workload to its clients (servegym trace fit) and draw a trace from that"


def refusal(file: str) -> str:
    """Say what a client file is and what to do with it."""
    return f"{file} is ServeGen client data: distributions, not a request log; {ADVICE}"


def is_rates(header: tuple[str, ...]) -> bool:
    """Return whether a header is that of a table of clients' summed rates per window."""
    first, ending = RATES_HEADER
    return header[:1] == (first,) and all(name.endswith(ending) for name in header[1:])


def rates_refusal(file: str) -> str:
    """Say what a table of rates is."""
    return (
        f"{file} is a table of ServeGen rates: requests/s in windows, not a request log; {ADVICE}"
    )
