"""A browser for tests: opens a page in headless Chromium, returns what became of it and what it said.

Without Chromium such tests skip; SERVEGYM_REQUIRE_CHROMIUM=1 makes its absence a failure. Driven by
command line options alone: no driver, no further package.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--window-size=1400,900",
    "--virtual-time-budget=5000",  # ms: timers and frames up to then are run
    "--dump-dom",
)
NO_CHROMIUM = "no Chromium: install it (Debian: apt-get install chromium)"


def find_chromium() -> str:
    """Return the browser; skips the test, or fails it, when there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("SERVEGYM_REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"{NO_CHROMIUM} (SERVEGYM_REQUIRE_CHROMIUM=1 makes this a failure)")
    pytest.skip(NO_CHROMIUM)


def open_page(page: Path, profile: Path, hash: str = "") -> tuple[str, list[str]]:
    """Return the page's DOM as HTML after its scripts ran, and all it wrote to the console.

    profile: a folder that does not exist yet. Root needs --no-sandbox.
    """
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    done = subprocess.run(
        [
            find_chromium(),
            *OPTIONS,
            *sandbox,
            f"--user-data-dir={profile}",
            f"{page.as_uri()}{hash}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout, done.stderr
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)
