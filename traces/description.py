"""The figures of a trace (describe.py) as text: what arrives, how bursty, how long. `-` is undefined."""

from typing import Any

STATISTICS = ("mean", "sd", "p1", "p5", "p25", "p50", "p75", "p90", "p99", "max")
CORRELATIONS = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "pearson_log": "Pearson of log(1 + n)",
}


def describe_text(figures: dict[str, Any]) -> str:
    """Return the figures as aligned lines."""
    together = ", ".join(
        f"{label} {shown(figures['correlation'][key])}" for key, label in CORRELATIONS.items()
    )
    lines = [
        f"{figures['name'] or 'unnamed'} ({figures['source'] or 'source unknown'})",
        f"{figures['requests']:,} requests over {figures['span_s']:,.1f} s, "
        f"{shown(figures['mean_rate_per_s'])} req/s, inter-arrival CV {shown(figures['interarrival_cv'])}",
        "",
        *window_lines(figures["windows"]),
        "",
        f"{'tokens':<8}" + "".join(f"{name:>10}" for name in STATISTICS),
        *(length_line(name, figures[f"{name}_tokens"]) for name in ("prompt", "output")),
        f"prompt with output: {together}",
        "",
        f"tiers: {shares_text(figures['tiers'])}",
        *(label_line(name, labels) for name, labels in figures["labels"].items()),
    ]
    if figures["prefix_reuse_share"] is not None:
        lines.append(f"prefix blocks already seen: {100 * figures['prefix_reuse_share']:.1f} %")
    lines += [f"note: {note}" for note in figures["notes"]]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in figures["warnings"])])


def window_lines(windows: list[dict[str, Any]]) -> list[str]:
    """Return the table of burstiness by window."""
    header = f"{'window':<8}{'dispersion':>12}{'peak req/s':>12}{'empty':>10}"
    return [
        header,
        *(
            f"{str(row['window_s']) + ' s':<8}{shown(row['index_of_dispersion']):>12}"
            f"{shown(row['peak_per_s']):>12}{shown(row['empty_share']):>10}"
            for row in windows
        ),
    ]


def length_line(name: str, figures: dict[str, Any]) -> str:
    """Return one line of the table of lengths."""
    return f"{name:<8}" + "".join(f"{shown(figures[key]):>10}" for key in STATISTICS)


def label_line(name: str, labels: dict[str, Any]) -> str:
    """Return how many labels there are, and the most frequent."""
    n, largest = labels["distinct"], labels["largest"]
    rest = f"; largest of {n:,}" if n > len(largest) else ""
    return f"{name}: {shares_text(largest)}{rest}"


def shares_text(shares: dict[str, float]) -> str:
    """Return names with their shares in percent."""
    return ", ".join(f"{k or 'not recorded'} {100 * v:.3g} %" for k, v in shares.items()) or "-"


def shown(amount: float | None) -> str:
    """Return four significant digits without an exponent; - where undefined."""
    if amount is None:
        return "-"
    return f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:.4g}"
