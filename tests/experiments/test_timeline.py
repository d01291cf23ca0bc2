"""The timeline: what the page is told is the result, and a browser shows it."""

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import find_chromium, open_page
from hypothesis import given
from hypothesis import strategies as st

import servegym
from servegym.__main__ import main
from servegym.baselines.simulate import simulate
from servegym.experiments.timeline import SCRIPTS, timeline
from servegym.experiments.timeline_data import rows_of
from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result
from servegym.traces import Trace, generate

# Acts once the page stands, and draws at once: frames come when the machine has time.
SCRIPT = '<script>addEventListener("load", () => {{ {} draw(); }});</script></body>'


def crowded(name: str = "azure-conv", **options) -> Result:
    """300 requests of three tiers on two instances whose KV is too small: preemptions happen."""
    drawn = generate("azure-conv", 300, 50.0, 0).assign_tiers([0.5, 0.3, 0.2], 0)
    trace = Trace(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens, drawn.tier, name=name)
    config = ClusterConfig(instances=2, kv_blocks=700, tiers=3, max_num_seqs=32)
    return simulate(trace, config, "random", seed=3, **options)


@pytest.fixture(scope="module")
def result() -> Result:
    return crowded()


@pytest.fixture(scope="module")
def page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timeline(result, tmp_path_factory.mktemp("timeline") / "run.html")


def data_of(page: Path) -> dict[str, Any]:
    """Return what a page is told."""
    found = re.findall(r'<script type="application/json" id="run">(.*?)</script>', page.read_text())
    assert len(found) == 1
    return json.loads(found[0])


def column(result: Result, name: str) -> np.ndarray:
    """Return a column of the table of requests."""
    return result.requests[name].to_numpy()


def after(page: Path, tmp_path: Path, action: str, hash: str = "") -> tuple[str, list[str]]:
    """Open a copy of the page, run some JavaScript in it, and return its DOM and console."""
    copy = tmp_path / "acted.html"
    copy.write_text(page.read_text().replace("</body>", SCRIPT.format(action)))
    return open_page(copy, tmp_path / "profile", hash)


def picture_of(dom: str) -> dict[str, float]:
    """Return what the canvas says of itself: bars drawn, and the seconds in sight."""
    tag = re.search(r'<canvas id="picture"[^>]*>', dom)
    assert tag
    return {name: float(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', tag[0])}


def test_the_page_is_told_every_request_to_the_microsecond(result: Result, page: Path):
    told, table = data_of(page)["requests"], result.requests
    assert told["id"] == list(range(300))
    assert told["lane"] == table["instance"].tolist()
    columns = {"arrival": "arrival_s", "admitted": "admitted_s", "first_token": "first_token_s"}
    for name, column in (columns | {"end": "finish_s"}).items():
        np.testing.assert_allclose(np.array(told[name]) / 1e6, table[column], atol=0.6e-6)
    for name in ("tier", "prompt_tokens", "output_tokens", "preemptions", "recomputed_tokens"):
        assert told[name] == table[name].tolist()


def test_marks_are_the_preemptions_of_the_requests(result: Result, page: Path):
    data = data_of(page)
    marks = Counter()
    for request, times in zip(
        data["evictions"]["request"], data["evictions"]["times"], strict=True
    ):
        marks[request] += times
    expected = {r: n for r, n in enumerate(result.requests["preemptions"].tolist()) if n}
    assert expected and dict(marks) == expected


def test_heading_says_what_ran(page: Path):
    data = data_of(page)
    assert data["system"] == "random"
    assert data["setting"].startswith("300 requests of azure-conv at ")
    assert "on 2 × a100_sxm/Llama-3.1-8B/tp1 (vllm-v1, " in data["setting"]
    assert "kv_blocks=700" in data["setting"] and data["setting"].endswith("seed 3")
    assert data["numbers"].startswith("300 finished; TTFT mean ") and data["notes"] == []


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2)),
        min_size=1,
        max_size=60,
    )
)
def test_bars_never_overlap_and_rows_are_as_many_as_requests_at_once(
    bars: list[tuple[int, int, int]],
):
    starts, lengths, lanes = (np.array(column) for column in zip(*sorted(bars), strict=True))
    ends = starts + lengths
    rows = rows_of(lanes, starts, ends)
    for lane in np.unique(lanes):
        own = lanes == lane
        for row in np.unique(rows[own]):
            here = np.flatnonzero(own & (rows == row))
            assert (starts[here][1:] >= ends[here][:-1]).all()
        # Those in a row that touch are not there at once, unless one is of no length.
        at_once = max(int((own & (starts <= t) & (ends > t)).sum()) for t in starts[own])
        assert rows[own].max() + 1 <= max(at_once, 1) + int((own & (lengths == 0)).sum())


def test_the_page_loads_nothing_from_elsewhere(page: Path):
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.findall(
        r"https?:|//[a-z]+\.|@import|url\(|<script[^>]+src|<link[^>]+stylesheet", text
    )


def test_names_cannot_break_out_of_the_data(tmp_path: Path):
    name = "</script><script>document.body.dataset.broken = 1</script><!-- scripts -->"
    page = timeline(crowded(name), tmp_path / "run.html")
    assert name in data_of(page)["setting"]
    assert page.read_text().count("<script") == 1 + len(SCRIPTS)


def test_a_thinned_page_says_so(result: Result, tmp_path: Path):
    page = timeline(result, tmp_path / "run.html", max_requests=50, instances=[1])
    data = data_of(page)
    there = int((column(result, "instance") == 1).sum())
    assert len(data["requests"]["id"]) == 50 and len(data["lanes"]) == 1
    assert data["lanes"][0]["requests"] == there
    assert (column(result, "instance")[data["requests"]["id"]] == 1).all()
    assert data["notes"] == [
        "1 of 2 instances are shown.",
        f"Only 50 of {there} requests are shown as bars, evenly thinned; KV use, queues and the "
        "numbers above are of all.",
    ]


def test_what_has_no_bar_or_no_end_is_noted(tmp_path: Path):
    trace = Trace([0.0, 1.0, 2.0], [16, 100_000, 16], [2, 2, 4000])
    cut = simulate(trace, instances=1, kv_blocks=1000, horizon_s=3.0)
    data = data_of(timeline(cut, tmp_path / "run.html"))
    assert data["notes"] == [
        "1 requests were never placed on an instance and have no bar.",
        "1 requests were unfinished when the run was cut; their bars end there.",
    ]
    assert data["requests"]["id"] == [0, 2] and data["requests"]["end"][1] == 3_000_000


def test_the_same_page_from_a_result_a_saved_one_and_the_command_line(
    result: Result, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    result.save(tmp_path / "saved")
    saved = Result.load(tmp_path / "saved").timeline(tmp_path / "saved.html")
    assert saved.read_text() == page.read_text()
    assert result.timeline(str(tmp_path / "method.html")).read_text() == page.read_text()
    assert servegym.timeline(result, tmp_path / "door.html").read_text() == page.read_text()
    written = tmp_path / "command.html"
    arguments = ["--workload", "azure-conv", "--requests", "50", "--rate", "9", "--json"]
    assert main(["simulate", *arguments, "--timeline", str(written)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["offered"] == 50 and f"wrote {written}" in err
    assert len(data_of(written)["requests"]["id"]) == 50


def test_bad_arguments_are_named(result: Result, tmp_path: Path):
    with pytest.raises(ValueError, match="max_requests = 0; must be >= 1"):
        timeline(result, tmp_path / "run.html", max_requests=0)
    with pytest.raises(ValueError, match="instances: 5; must be in"):
        timeline(result, tmp_path / "run.html", instances=[5])


def test_a_browser_shows_the_lanes_and_complains_of_nothing(
    result: Result, page: Path, tmp_path: Path
):
    dom, console = open_page(page, tmp_path / "profile")
    assert console == []
    lanes = re.findall(r'<li data-instance="(\d+)">(.*?)</li>', dom)
    assert [int(i) for i, _ in lanes] == [0, 1]
    count = int((column(result, "instance") == 0).sum())
    assert lanes[0][1].startswith(f"instance 0: {count} requests, KV use up to ")
    assert "<title>Timeline of random</title>" in dom
    assert f'<p id="setting">{html.escape(data_of(page)["setting"])}</p>' in dom
    assert re.search(r'<p id="fault"[^>]* hidden', dom)
    for tier in range(3):
        assert f"tier {tier}: queued, prefill, decode" in dom
    shown = picture_of(dom)
    assert shown["drawn"] == 300
    assert shown["from"] == pytest.approx(result.requests["arrival_s"].min(), abs=1e-5)
    assert shown["to"] == pytest.approx(result.requests["finish_s"].max(), abs=1e-5)


def test_a_link_to_a_window_opens_it(result: Result, page: Path, tmp_path: Path):
    shown = picture_of(open_page(page, tmp_path / "profile", "#from=2&to=3")[0])
    is_there = (column(result, "arrival_s") <= 3) & (column(result, "finish_s") >= 2)
    there = int(is_there.sum())
    assert (shown["from"], shown["to"]) == (2.0, 3.0)
    assert 0 < shown["drawn"] <= there < 300


def test_keys_buttons_and_the_wheel_zoom_and_move(page: Path, tmp_path: Path):
    press = 'picture.dispatchEvent(new KeyboardEvent("keydown", {key: "%s"}));'
    whole, whole_console = after(page, tmp_path, press % "+" + press % "0")
    dom, console = after(
        page,
        tmp_path,
        press % "+"
        + press % "ArrowRight"
        + 'byId("in").click(); byId("later").click();'
        + 'picture.dispatchEvent(new WheelEvent("wheel", {deltaY: -100, cancelable: true}));',
    )
    assert whole_console == console == []
    full, shown = picture_of(whole), picture_of(dom)
    assert full["drawn"] == 300
    wide, long = shown["to"] - shown["from"], full["to"] - full["from"]
    assert wide == pytest.approx(long / 1.5 / 1.5 * np.exp(-0.25))
    # Zooming by k about the middle leaves (1 - 1/k)/2 of the span before it; then the moves; the
    # wheel, at the left edge, keeps that edge.
    first = long / 1.5
    expected = full["from"] + (long - first) / 2 + 0.15 * first
    expected += (first - first / 1.5) / 2 + 0.4 * first / 1.5
    assert shown["from"] == pytest.approx(min(expected, full["to"] - first / 1.5), abs=1e-5)


def test_pointing_at_a_request_tells_its_numbers(result: Result, page: Path, tmp_path: Path):
    r = int(np.argmax(result.requests["preemptions"]))
    dom, console = after(page, tmp_path, f'byId("wanted").value = {r}; byId("find").click();')
    row = result.requests.iloc[r]
    assert console == [] and picture_of(dom)["drawn"] < 300
    tip = dom[dom.index('<div id="tip"') :]
    assert f"request {r}: finished, tier {row['tier']}, instance {row['instance']}" in tip
    assert f"<td>TTFT</td><td>{row['ttft_s']:.3f} s</td>" in tip
    assert f"<td>E2E</td><td>{row['e2e_s']:.3f} s</td>" in tip
    assert f"<td>TPOT</td><td>{1e3 * row['tpot_s']:.2f} ms</td>" in tip
    assert f"{row['preemptions']} time" in tip and f"{row['recomputed_tokens']:,} token" in tip


def test_hovering_finds_the_bar_under_the_pointer(page: Path, tmp_path: Path):
    # Any bar in sight: the pointer goes to its middle, and the box must speak of that request.
    move = (
        "const r = 17, lane = run.lanes[requests.lane[r]], box = picture.getBoundingClientRect();"
        "const x = xOf((requests.arrival[r] + requests.end[r]) / 2);"
        "const y = lane.bars + (requests.row[r] + 0.5) * rowHeight;"
        'picture.dispatchEvent(new PointerEvent("pointermove",'
        "{clientX: box.left + x, clientY: box.top + y}));"
    )
    dom, console = after(page, tmp_path, move)
    assert console == []
    assert "<b>request 17: finished, tier " in dom


def test_a_page_without_requests_opens_too(tmp_path: Path):
    page = timeline(simulate(Trace([], [], []), instances=2), tmp_path / "run.html")
    dom, console = open_page(page, tmp_path / "profile")
    assert console == [] and picture_of(dom)["drawn"] == 0
    assert re.findall(r'<li data-instance="\d">(.*?)</li>', dom)[0].startswith("instance 0: 0 req")


def test_a_missing_browser_skips_or_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SERVEGYM_REQUIRE_CHROMIUM", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium: install it"):
        find_chromium()
    monkeypatch.setenv("SERVEGYM_REQUIRE_CHROMIUM", "1")
    with pytest.raises(pytest.fail.Exception, match="makes this a failure"):
        find_chromium()
