"""LoadReport: what a loader read, what it dropped and why, and the rates of what it kept.

Nothing is dropped silently: rows read = kept + dropped, and each drop has a reason.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoadReport:
    """The account of one load.

    file: name of the file. format: the format it was read as. rows_read: data rows read.
    kept: requests in the trace. dropped: rows by reason. rates: one line on the requests kept.
    warnings: what to doubt, one sentence each.
    """

    file: str
    format: str
    rows_read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    rates: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Rows are conserved."""
        assert self.rows_read == self.kept + sum(self.dropped.values())

    def __str__(self) -> str:
        """Two lines, the account and the rates, then one for each warning."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        account = f"{self.rows_read:,} rows read, {self.kept:,} kept, dropped: {reasons or 'none'}"
        doubts = "".join(f"\nwarning: {warning}" for warning in self.warnings)
        return f"{self.file} ({self.format}): {account}\n{self.rates}{doubts}"
