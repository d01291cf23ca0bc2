"""Pictures of a paused simulation: what stands in them, that they keep their size, and that looking changes nothing.

FLAT instances take 10 ms an iteration and have 1,000 blocks of 16 tokens unless said otherwise.
"""

import copy
from itertools import pairwise

import gymnasium
import matplotlib
import numpy as np
import pytest
from flat_profile import FLAT

from servegym.envs.rendering import Painter, Window, ansi, look, rgb_array
from servegym.envs.rendering.history import MOST_POINTS
from servegym.envs.rendering.panel import round_up
from servegym.envs.rendering.terminal import BAR, WIDTH, bar_of, short
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Labels, Trace

SHAPE = (480, 800, 3)


def paused(until_s: float, *rows: tuple[float, int, int, int], **options) -> Simulation:
    """Return a simulation of rows (arrival in s, tier, prompt, output), stopped at until_s."""
    arrival_s, tier, prompt, output = np.array(rows, np.float64).reshape(-1, 4).T
    tenant = options.pop("tenant", None)
    trace = Trace(
        arrival_s, prompt.astype(int), output.astype(int), tier=tier.astype(int), tenant=tenant
    )
    config = ClusterConfig(**({"profile": FLAT, "tiers": 2} | options))
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    simulation.run(until_s)
    return simulation


def two_instances_and_a_queue() -> Simulation:
    """Return two FLAT instances of one seat and 100 blocks at .045 s.

    Requests 0 and 1 run: 160 and 320 prompt tokens and four streamed at .04, a fifth under way. Request 2, of tier 1,
    has waited at the gateway since .01, and request 3, of tier 0, since .025.
    """
    rows = [(0.0, 0, 160, 50), (0.0, 1, 320, 50), (0.01, 1, 16, 5), (0.025, 0, 16, 5)]
    options = {"instances": 2, "max_num_seqs": 1, "kv_blocks": 100, "max_local_waiting": 0}
    return paused(0.045, *rows, **options)


# The scene.


def test_scene_holds_counts_blocks_and_queues():
    # 160 prompt tokens and 4 computed of those streamed (the fifth iteration computes the fourth): 164 / 16 -> 11;
    # 324 / 16 -> 21
    scene = look(two_instances_and_a_queue())
    assert scene.now_s == 0.045
    assert scene.conditions == ["active", "active"]
    assert scene.running.tolist() == [1, 1] and scene.waiting.tolist() == [0, 0]
    assert scene.used_blocks.tolist() == [11, 21] and scene.kv_blocks.tolist() == [100, 100]
    assert scene.queue_names == ["tier 0", "tier 1"] and scene.queued.tolist() == [1, 1]
    assert scene.head_waits_s.tolist() == pytest.approx([0.02, 0.035], abs=1e-12)
    assert scene.counts["arrived"] == scene.counts["unfinished"] == 4
    assert sum(scene.counts.values()) == 8


def test_scene_names_queues_by_what_they_hold():
    row, tenant = (0.0, 0, 10, 5), Labels.of(["acme"])
    by_tenant = paused(0.1, row, tenant=tenant, queue_by="tenant")
    assert look(by_tenant).queue_names == ["acme"]
    assert look(paused(0.1, row, queue_by="none")).queue_names == ["queue"]
    held = paused(0.1, row, admission="queue-cap")
    assert look(held).queue_names == ["tier 0", "tier 1", "held back"]


def test_scene_tells_all_conditions():
    # 1 is down from .01 on; 2 is absent; the fleet of 3 was started with 2
    fault = {"kind": "crash", "instance": 1, "at_s": 0.01, "duration_s": 9}
    row = (0.0, 0, 10, 5)
    crashed = paused(0.02, row, instances=2, max_instances=3, faults=(fault,))
    assert look(crashed).conditions == ["active", "down", "absent"]


def test_empty_instance_that_drains_is_absent():
    # nothing arrives before 5 s: freeness drains one of three at 0, and it is empty at once
    fleet = paused(0.5, (5.0, 0, 10, 5), instances=3, scaling="freeness")
    assert sorted(look(fleet).conditions) == ["absent", "active", "active"]


# Text.


def test_text_shows_instances_queues_and_facts():
    text = ansi(
        two_instances_and_a_queue(), step=17, role="dispatch", action="instance 1", reward=-12.5
    )
    lines = text.splitlines()
    assert lines[0] == "t = 0.045 s   step 17   dispatch: instance 1   reward so far -12.5"
    assert lines[1] == "arrived 4   finished 0   rejected 0   failed 0   cancelled 0   unfinished 4"
    first = next(line for line in lines if line.split()[:2] == ["0", "active"])
    # 11 of 100 blocks: 3.74 of 34 signs, rounded up
    assert first.split()[2:4] == ["1", "0"] and first.count("█") == 4 and "11 %" in first
    assert [line.split() for line in lines if line.startswith("tier")] == [
        ["tier", "0", "1", "0.020", "s"],
        ["tier", "1", "1", "0.035", "s"],
    ]


@pytest.mark.parametrize(
    ("used", "wanted", "n_used", "n_wanted"),
    [(0, 0, 0, 0), (0.001, 0.001, 1, 1), (0.999, 5, 33, 1), (1, 5, 34, 0), (0.5, 0.25, 17, 9)],
)
def test_bar_shows_a_little_and_nearly_all_as_such(used, wanted, n_used, n_wanted):
    bar = bar_of(used, wanted)
    assert (bar.count("█"), bar.count("▒"), len(bar)) == (n_used, n_wanted, BAR)


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0"), (9999, "9,999"), (12_345, "12.3k"), (123_456, "123k"), (4e6, "4M"), (7e9, "7G")],
)
def test_counts_are_short(n, text):
    assert short(n) == text


def test_colour_is_only_added():
    simulation = two_instances_and_a_queue()
    coloured = ansi(simulation, colour=True)
    assert "\033[" not in ansi(simulation)
    for escape in ("\033[34m", "\033[0m"):
        assert escape in coloured
        coloured = coloured.replace(escape, "")
    plain = [line.rstrip() for line in coloured.splitlines()]
    assert plain == ansi(simulation).splitlines()


# Extreme states.


def nobody() -> Simulation:
    return paused(0.0, (5.0, 0, 10, 5), instances=1)


def no_trace() -> Simulation:
    return paused(0.0, instances=1)


def ten_thousand_waiting() -> Simulation:
    rows = [(0.0, r % 2, 160, 50) for r in range(10_000)]
    return paused(0.1, *rows, instances=2, max_num_seqs=4)


def ten_thousand_at_the_gateway() -> Simulation:
    rows = [(0.0, r % 2, 160, 50) for r in range(10_000)]
    return paused(0.1, *rows, instances=2, max_num_seqs=4, max_local_waiting=0)


def sixty_four() -> Simulation:
    rows = [(0.001 * r, r % 2, 1600, 50) for r in range(500)]
    return paused(0.6, *rows, instances=64, max_num_seqs=4)


def a_hundred_instances_and_forty_tiers() -> Simulation:
    rows = [(0.0, r % 40, 1600, 50) for r in range(500)]
    return paused(0.2, *rows, instances=100, max_num_seqs=4, tiers=40, max_local_waiting=0)


def all_down() -> Simulation:
    faults = tuple(
        {"kind": "crash", "instance": i, "at_s": 0.05, "duration_s": 9} for i in range(3)
    )
    rows = [(0.01 * r, 0, 160, 50) for r in range(30)]
    return paused(0.4, *rows, instances=3, max_instances=5, faults=faults)


EXTREMES = [
    nobody,
    no_trace,
    ten_thousand_waiting,
    ten_thousand_at_the_gateway,
    sixty_four,
    a_hundred_instances_and_forty_tiers,
    all_down,
]


@pytest.mark.parametrize("state", EXTREMES)
def test_extreme_states_have_room(state):
    simulation = state()
    text = ansi(simulation, action="a" * 200, step=10**9, reward=-1e300)
    assert max(map(len, text.splitlines())) <= WIDTH
    frame = rgb_array(simulation, action="a" * 200)
    assert frame.shape == SHAPE and frame.dtype == np.uint8
    assert (frame != 255).any()


def test_text_says_how_many_are_left_out():
    simulation = a_hundred_instances_and_forty_tiers()
    text = ansi(simulation)
    scene = look(simulation)
    running = int(scene.running[64:].sum())
    assert f"... and 36 more instances with {running} running and 0 waiting" in text
    assert f"... and 24 more queues with {scene.queued[16:].sum()} requests" in text
    assert len([line for line in text.splitlines() if " active " in line]) == 64


def test_crashed_and_absent_instances_are_told_in_words():
    text = ansi(all_down())
    assert text.count(" down ") == 3 and text.count(" absent") == 2
    assert "tier 0                 30" in text  # all came back to the gateway, or arrived there


# Frames.


def test_frames_of_a_run_keep_their_size_and_change():
    simulation, painter = two_instances_and_a_queue(), Painter()
    frames = []
    for until_s in np.linspace(0.05, 1.0, 12):
        simulation.run(until_s)
        frames.append(painter.frame(simulation, step=len(frames)))
    assert {frame.shape for frame in frames} == {SHAPE}
    assert {frame.dtype for frame in frames} == {np.dtype(np.uint8)}
    assert all((a != b).any() for a, b in pairwise(frames))


def test_frame_is_a_copy_of_its_own():
    simulation, painter = two_instances_and_a_queue(), Painter()
    first = painter.frame(simulation)
    before = first.copy()
    simulation.run(1.0)
    painter.frame(simulation)
    np.testing.assert_array_equal(first, before)


def test_painter_draws_what_a_fresh_one_draws_when_time_went_back():
    # a new episode, a restored snapshot: neither the past nor an axis that had grown may show
    painter = Painter()
    early = two_instances_and_a_queue()
    late = copy.deepcopy(early)
    late.run(1.0)
    painter.frame(late)
    np.testing.assert_array_equal(painter.frame(early), Painter().frame(early))


def test_longer_bar_is_drawn_for_more_kv():
    # bars are blue (0, 114, 178); 21 blocks of 100 beside 11
    frame = rgb_array(two_instances_and_a_queue()).astype(int)
    is_blue = np.abs(frame - [0, 114, 178]).sum(axis=2) < 12
    left, right = is_blue[160:260, 70:280].sum(), is_blue[160:260, 281:500].sum()
    assert right == pytest.approx(21 / 11 * left, rel=0.15)


def test_another_size_is_kept():
    painter = Painter(width=640, height=384)
    assert painter.frame(two_instances_and_a_queue()).shape == (384, 640, 3)


def test_history_is_thinned_and_keeps_its_ends():
    simulation, painter = nobody(), Painter()
    for k in range(MOST_POINTS + 500):
        simulation.run_until_ps(k * 10**6)
        painter._history.add(look(simulation))
    time_s, _, _ = painter._history.arrays()
    assert len(time_s) <= MOST_POINTS
    assert (time_s[0], time_s[-1]) == (0.0, (MOST_POINTS + 499) * 1e-6)
    assert (np.diff(time_s) > 0).all()


@pytest.mark.parametrize(
    ("x", "least", "end"), [(0, 10, 10), (11, 10, 20), (21, 10, 50), (51, 1, 100), (1e6, 1, 1e6)]
)
def test_axes_grow_by_one_two_and_five(x, least, end):
    assert round_up(x, least) == end


def test_no_figure_of_pyplot_is_made():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    rgb_array(two_instances_and_a_queue())
    assert plt.get_fignums() == before


# Looking.


@pytest.mark.parametrize("engine", ["vllm-v1", "vllm-v0", "sarathi", "static"])
def test_looking_changes_no_result(engine):
    options = {
        "instances": 3,
        "engine": engine,
        "kv_blocks": 60,
        "max_num_seqs": 4,
        "batch_size": 4,
        "metrics_interval_s": 0.05,
        "max_local_waiting": 1,
    }
    rows = [(0.01 * r, r % 2, 50 + r, 20 + r % 7) for r in range(80)]
    seen, unseen = (paused(0.0, *rows, **options) for _ in range(2))
    painter = Painter()
    for until_s in np.arange(0.005, 1.0, 0.033):
        seen.run(until_s)
        unseen.run(until_s)
        painter.frame(seen)
        ansi(seen)
    for simulation in (seen, unseen):
        simulation.run()
    np.testing.assert_array_equal(seen.state.requests, unseen.state.requests)
    np.testing.assert_array_equal(seen.state.memory, unseen.state.memory)


# A window.


def test_without_windows_the_error_says_what_to_use(monkeypatch):
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "agg")
    matplotlib.use("agg")
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match="'ansi'.*'rgb_array'"):
        Window().show(np.zeros(SHAPE, np.uint8))
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


def test_window_that_was_never_opened_can_be_closed():
    window = Window()
    window.close()
    assert window._figure is None
