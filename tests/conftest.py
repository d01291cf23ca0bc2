"""Shared fixtures: where the real traces and reference runs are, and what their absence means.

The data folder is SERVEGYM_DATA, else ../shared/data beside the repository. Without it, data tests
skip and one summary line counts them; SERVEGYM_REQUIRE_DATA=1 makes its absence a failure.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NO_DATA = "no data folder: set SERVEGYM_DATA"


def find_data_dir() -> Path | None:
    """Return the data folder, or None when there is none."""
    named = os.environ.get("SERVEGYM_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with traces/, step_time/ and reference/; skips or fails when it is absent."""
    folder = find_data_dir()
    if folder is not None:
        return folder
    if os.environ.get("SERVEGYM_REQUIRE_DATA") == "1":
        pytest.fail(f"{NO_DATA} (SERVEGYM_REQUIRE_DATA=1 makes this a failure)")
    pytest.skip(NO_DATA)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line how many tests were skipped for want of data."""
    skipped = terminalreporter.stats.get("skipped", [])
    n_missing = sum(NO_DATA in str(report.longrepr) for report in skipped)
    if n_missing:
        terminalreporter.write_line(f"{n_missing} data tests skipped: no SERVEGYM_DATA")
