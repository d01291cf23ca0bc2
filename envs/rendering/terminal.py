"""A scene as text: a bar an instance, a line a queue, at most 100 columns wide.

    t = 12.345 s   step 17   dispatch: instance 3
    arrived 120   finished 80   rejected 0   failed 0   cancelled 0   unfinished 40
    instance  state     running  waiting  KV in use + wanted by those that wait
           0  active         12        3  ██████████████▒▒▒▒················   41 % + 9 % of 2,000

█: KV blocks in use; ▒: wanted by those that wait, up to the end of the bar; ·: free.
"""

import math

from servegym.envs.rendering.scene import Scene, look
from servegym.simulator.simulation import Simulation

WIDTH = 100  # columns
BAR = 34
MOST_INSTANCES, MOST_QUEUES = 64, 16  # lines; the rest in one
NAME_WIDTH = 16
IN_USE, WANTED, FREE = "█", "▒", "·"
# ANSI escapes, bright enough on black and dark enough on white; words and signs say the same.
COLOURS = {
    "active": "\033[34m",
    "starting": "\033[36m",
    "draining": "\033[35m",
    "down": "\033[31m",
    "absent": "\033[90m",
}
RESET = "\033[0m"


def ansi(
    simulation: Simulation,
    *,
    step: int | None = None,
    role: str = "",
    action: str = "",
    reward: float | None = None,
    colour: bool = False,
) -> str:
    """Return the simulation's present as text; colour=True adds ANSI escapes, which take no columns.

    step, role, action, reward: shown if given (scene.Facts).
    """
    return text_of(
        look(simulation, step=step, role=role, action=action, reward=reward), colour=colour
    )


def text_of(scene: Scene, colour: bool = False) -> str:
    """Return a scene as text, lines without trailing blanks."""
    heading = f"t = {scene.now_s:,.3f} s   {scene.facts.text()}"
    counts = "   ".join(f"{name} {n:,}" for name, n in scene.counts.items())
    lines = [*_fold(heading), *_fold(counts), ""]
    lines += ["instance  state     running  waiting  KV in use + wanted by those that wait"]
    lines += [_instance_line(scene, i, colour) for i in range(len(scene.conditions))][
        :MOST_INSTANCES
    ]
    lines += _left_out_instances(scene)
    lines += ["", f"{'gateway':<{NAME_WIDTH}}  waiting  head waits"]
    lines += [_queue_line(scene, q) for q in range(len(scene.queue_names))[:MOST_QUEUES]]
    left_out = scene.queued[MOST_QUEUES:]
    if len(left_out):
        lines.append(f"... and {len(left_out)} more queues with {left_out.sum():,} requests")
    return "\n".join(line.rstrip() for line in lines)


def _instance_line(scene: Scene, i: int, colour: bool) -> str:
    condition, blocks = scene.conditions[i], int(scene.kv_blocks[i])
    used, wanted = float(scene.kv_shares[i]), float(scene.wanted_shares[i])
    bar = bar_of(used, wanted) if condition != "absent" else " " * BAR
    if colour:
        condition = f"{COLOURS[condition]}{condition:<8}{RESET}"
        bar = f"{COLOURS[scene.conditions[i]]}{bar}{RESET}"
    share = f"{_percent(used):>5} + {_percent(wanted)} of {short(blocks)}"
    return (
        f"{i:>8}  {condition:<8}  {short(scene.running[i]):>7}  {short(scene.waiting[i]):>7}  {bar}  "
        + ("" if scene.conditions[i] == "absent" else share)
    )


def bar_of(used: float, wanted: float) -> str:
    """Return a bar of BAR signs for shares of all KV; a share above 0 has at least one sign, one below 1 not all."""
    n_used = math.floor(used * BAR) if used >= 1.0 else min(math.ceil(used * BAR), BAR - 1)
    n_used = min(n_used, BAR)
    n_wanted = min(math.ceil(wanted * BAR), BAR - n_used)
    return IN_USE * n_used + WANTED * n_wanted + FREE * (BAR - n_used - n_wanted)


def short(n: float) -> str:
    """Return a count in at most five signs: 9,999, 12.3k, 4M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        scaled = n / size
        if scaled >= (10 if unit == "k" else 1):
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    return f"{n:,.0f}"


def _percent(share: float) -> str:
    return f"{short(100.0 * share)} %"


def _left_out_instances(scene: Scene) -> list[str]:
    n = len(scene.conditions) - MOST_INSTANCES
    if n <= 0:
        return []
    running, waiting = scene.running[MOST_INSTANCES:].sum(), scene.waiting[MOST_INSTANCES:].sum()
    return [f"... and {n:,} more instances with {running:,} running and {waiting:,} waiting"]


def _queue_line(scene: Scene, q: int) -> str:
    name, n = scene.queue_names[q], int(scene.queued[q])
    shown = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
    wait = f"{scene.head_waits_s[q]:,.3f} s" if n else ""
    return f"{shown:<{NAME_WIDTH}}  {short(n):>7}  {wait:>12}"


def _fold(text: str) -> list[str]:
    """Return the text in lines of at most WIDTH columns, broken between its parts if it can be."""
    lines = [""]
    for part in text.strip().split("   "):
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > WIDTH and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return [line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in lines]
