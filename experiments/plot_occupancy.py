"""KV use and queues over time: the two places where a cluster runs short.

kv_and_queue_over_time(result)            a line an instance (up to six), else mean and range
kv_and_queue_over_time([first, second])   a line a result: mean over its instances, and range
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from servegym.experiments.plot_axes import label, legend_beside, new_axes, say
from servegym.experiments.recorder import Recording, record
from servegym.experiments.run_text import Run, as_list, common_setting, run_names
from servegym.traces import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_SAMPLES = 500  # about one a pixel
MOST_LINES = len(palette.SERIES)  # instances drawn one by one


def kv_and_queue_over_time(
    results: Run | Sequence[Run], ax: "Sequence[Axes] | None" = None, n_samples: int = N_SAMPLES
) -> NDArray[Any]:
    """Return two axes over time: KV blocks in use [%], with preemptions, above; waiting below.

    ax: two axes to draw on instead of new ones. Every result is played again (recorder.py).
    """
    runs = as_list(results)
    axes = new_axes(2, height=5.0) if ax is None else np.asarray(ax)
    if axes.shape != (2,):
        raise ValueError(f"ax has shape {axes.shape}; must be two axes: KV use, then the queue")
    recordings = [record(run, n_samples) for run in runs]
    label(axes[0], "KV blocks in use, over time", common_setting(runs), "", "KV in use [%]")
    label(axes[1], "Requests waiting on an instance, over time", "", "time [s]", "waiting requests")
    if not any(len(run.requests) for run in runs):
        for one in axes:
            say(one, "no requests: nothing to show")
        return axes
    if len(runs) == 1 and len(recordings[0].instances) <= MOST_LINES:
        draw_instances(axes, recordings[0])
    else:
        for k, (name, recording) in enumerate(zip(run_names(runs), recordings, strict=True)):
            draw_range(axes, recording, name, k)
    for k, recording in enumerate(recordings):
        mark_preemptions(axes[0], recording, k, len(recordings))
    axes[0].set_ylim(0.0, 108.0)
    axes[1].set_ylim(bottom=0.0)
    legend_beside(axes[0])
    return axes


def draw_instances(axes: NDArray[Any], recording: Recording) -> None:
    """Draw one line an instance in both panels."""
    for m, i in enumerate(recording.instances.tolist()):
        style: dict[str, Any] = {"color": palette.colour_of(m), "linewidth": 1.1}
        share = 100 * recording.kv_share[:, m]
        axes[0].plot(recording.time_s, share, label=f"instance {i}", **style)
        axes[1].step(recording.time_s, recording.waiting[:, m], where="post", **style)


def draw_range(axes: NDArray[Any], recording: Recording, name: str, k: int) -> None:
    """Draw the mean over instances and, shaded, from the least to the largest."""
    colour, time = palette.colour_of(k), recording.time_s
    for ax, values in zip(axes, (100 * recording.kv_share, recording.waiting), strict=True):
        line = palette.line_style_of(k)
        text = f"{name}:\nmean of {values.shape[1]} instances,\nshaded least to largest"
        ax.plot(time, values.mean(axis=1), line, color=colour, linewidth=1.4, label=text)
        low, high = values.min(axis=1), values.max(axis=1)
        ax.fill_between(time, low, high, color=colour, alpha=0.18, linewidth=0)


def mark_preemptions(ax: "Axes", recording: Recording, k: int, n_results: int) -> None:
    """Mark, above the curves, the samples since whose predecessor something was preempted."""
    total = recording.preemptions.sum(axis=1)
    times = recording.time_s[np.flatnonzero(np.diff(total, prepend=0))]
    colour = palette.VERMILION if n_results == 1 else palette.colour_of(k)
    count = int(total[-1])
    text = f"{count:,} preemption{'s' if count != 1 else ''}" if count else "no preemptions"
    y = np.full(len(times), 105.5 - 3.0 * k)
    ax.plot(times, y, "|", color=colour, markersize=6, label=text)
