"""A run as one web page: what every instance and every request did, to zoom into.

    timeline(result, "run.html")

The page is one file that loads nothing: timeline.html with its scripts and the run as JSON put in.
Exact: arrival, start, first token and end of every request. Sampled (recorder.py): KV use, queues
and preemptions. Left out of large runs: requests beyond max_requests, evenly thinned, which it says.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from servegym.baselines.simulate import rerun
from servegym.experiments.recorder import N_SAMPLES, record
from servegym.experiments.run_text import Run
from servegym.experiments.timeline_data import page_data
from servegym.simulator.result import SavedResult

TEMPLATE = "timeline.html"
SCRIPTS = (
    "timeline_run.js",
    "timeline_draw.js",
    "timeline_strips.js",
    "timeline_hover.js",
    "timeline_input.js",
    "timeline_words.js",
)
DATA_MARK, SCRIPTS_MARK = "<!-- data -->", "<!-- scripts -->"
MAX_REQUESTS = 20_000  # what a browser redraws without a stutter
MAX_INSTANCES = 64  # lanes; more are a haystack


def timeline(
    run: Run,
    path: str | Path,
    *,
    instances: Sequence[int] | None = None,
    max_requests: int = MAX_REQUESTS,
    n_samples: int = N_SAMPLES,
) -> Path:
    """Write the page of a result, overwriting the file, and return its path.

    instances: whose lanes to show, by default the first 64. The run is played again to see inside
    it. ValueError for bad arguments, ReplayError if it cannot be repeated.
    """
    if max_requests < 1:
        raise ValueError(f"max_requests = {max_requests}; must be >= 1")
    result = rerun(run) if isinstance(run, SavedResult) else run
    shown = range(len(result.instances))[:MAX_INSTANCES] if instances is None else instances
    recording = record(result, n_samples, shown)
    path = Path(path)
    path.write_text(page(page_data(result, recording, max_requests)), encoding="utf-8")
    return path


def page(data: Mapping[str, Any]) -> str:
    """Return the template with the scripts and the data in their places."""
    folder = files("servegym.experiments")
    template = (folder / TEMPLATE).read_text(encoding="utf-8")
    for mark in (DATA_MARK, SCRIPTS_MARK):
        assert template.count(mark) == 1, f"{TEMPLATE} must hold {mark} once"
    scripts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    code = "\n".join(f"<script>\n{script}</script>" for script in scripts)
    before, after = template.replace(SCRIPTS_MARK, code).split(DATA_MARK)
    return before + json_element(data) + after


def json_element(data: Mapping[str, Any]) -> str:
    """Return the data as a script element that no text in it can end: every < is escaped."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="run">{text}</script>'
