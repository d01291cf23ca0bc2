"""The accessors of outlook_views.py once more, in plain Python from the records, seat by seat and without memory."""

from itertools import pairwise
from typing import Any

import numpy as np

from servegym.simulator import state as layout

OUTLIVED = 10


def left_of(request, generated: int) -> int:
    """Tokens left by the plug-in rule."""
    left = min(int(request["predicted_tokens"]), 2**20) - generated
    return left if left > 0 else OUTLIVED


def work_of(known: int, left: int) -> int:
    """What is known before each of the tokens left, one after the other."""
    return sum(range(known, known + left))


def seats(state: layout.State, i: int) -> list[dict[str, Any]]:
    """Return who runs on instance i, which has been read at the present: progress after the iterations that ended."""
    instance, now_ps = state.instances[i], int(state.shared[0]["now_ps"])
    is_static = state.engines[instance["engine"]]["kind"] == layout.STATIC
    ending = instance["stretch_end_ps"] != layout.NEVER and instance["iteration_end_ps"] <= now_ps
    found = []
    for position in range(instance["n_running"]):
        slot = state.slots[instance["first_slot"] + position]
        request = state.requests[slot["request"]]
        decodes = position < instance["n_decoding"]
        if is_static and instance["n_decoding"] > 0 and not decodes:
            continue  # done
        generated, computed = int(request["generated"]), int(request["computed"])
        at_change = generated
        if decodes:
            to_come = int(slot["finish_iteration"]) - int(instance["iteration"]) - int(ending)
            generated = int(request["output_tokens"]) - to_come
            computed = int(request["prompt_tokens"]) + generated - 1
            since = int(instance["iteration"]) + int(ending) - int(instance["seats_iteration"])
            at_change = generated - since
        found.append(
            {
                "decodes": decodes,
                "known": int(request["prompt_tokens"]) + generated,
                "computed": computed,
                "left": left_of(request, generated),
                "left_at_change": left_of(request, at_change),
                "known_at_change": int(request["prompt_tokens"]) + at_change,
            }
        )
    return found


def waiting(state: layout.State, i: int) -> list[Any]:
    """Return the records of those that wait at instance i, by place: queued there and in no seat."""
    instance = state.instances[i]
    first = instance["first_slot"]
    seated = set(state.slots[first : first + instance["n_running"]]["request"].tolist())
    here = (state.requests["instance"] == i) & (state.requests["place"] == layout.AT_INSTANCE)
    here &= state.requests["status"] == layout.UNFINISHED
    return [state.requests[r] for r in np.flatnonzero(here) if r not in seated]


def iteration_ms(state: layout.State, i: int, n: int, kv_tokens: int) -> float:
    """Return docs/engine.md section 1 for n decodes, to a picosecond."""
    e = state.engines[state.instances[i]["engine"]]
    inner = e["c0_ms"] + e["c_token_ms"] * n + e["c_above_knee_ms"] * max(0, n - e["knee_tokens"])
    if n > 0:
        inner += e["c_decode_step_ms"] + e["c_seq_ms"] * n
    rest_ps = np.rint((e["calibration"] * inner + e["host_overhead_ms"]) * 1e9)
    if e["slow_factor"] != 1.0:
        rest_ps = np.rint(rest_ps * e["slow_factor"])
    return float((int(rest_ps) + int(e["kv_ps"]) * kv_tokens) / 1e9)


def bucket(left: int) -> tuple[float, float]:
    """Return the ends of the half octave in which so many iterations lie; [3072, 4096) holds all beyond."""
    ends = [1.0]
    for octave in range(12):
        ends += [1.5 * 2**octave, 2.0 * 2**octave]
    for begin, end in pairwise(ends):
        if begin <= left < end:
            return begin, end
    return 3072.0, 4096.0


def iterations_to_free(state: layout.State, i: int, blocks: int) -> float:
    """Return in how many iterations predicted completions free so many blocks more."""
    instance = state.instances[i]
    engine, size = state.engines[instance["engine"]], int(state.shared[0]["block_size"])
    ending = instance["stretch_end_ps"] != layout.NEVER and (
        instance["iteration_end_ps"] <= state.shared[0]["now_ps"]
    )
    since = int(instance["iteration"]) + int(ending) - int(instance["seats_iteration"])
    held = [
        (each["left_at_change"], -(-each["known_at_change"] // size)) for each in seats(state, i)
    ]
    if held and engine["kind"] == layout.STATIC:
        all_blocks = int(engine["kv_blocks"] - instance["free_blocks"])
        held = [(max(left for left, _ in held), all_blocks)]
    total = sum(freed for _, freed in held)
    if total == 0:
        return float("inf")
    rest, reached = min(blocks, total), 0.0
    for begin, end in sorted({bucket(left) for left, _ in held}):
        freed = sum(n for left, n in held if bucket(left) == (begin, end))
        if freed >= rest:
            reached = begin + (end - begin) * rest / freed
            break
        rest -= freed
    return max(1.0, reached - since) * max(1.0, blocks / total)


def naive_row(state: layout.State, i: int, blocks=()) -> list[float]:
    """Return what feature_reads.outlooks() should say of instance i, which it has read just now."""
    running, queue = seats(state, i), waiting(state, i)
    decoders = [each for each in running if each["decodes"]]
    prefills = [each for each in running if not each["decodes"]]
    is_static = state.engines[state.instances[i]["engine"]]["kind"] == layout.STATIC
    lefts = [each["left"] for each in running]
    next_left = (max if is_static else min)(lefts, default=0)
    known = [int(r["prompt_tokens"]) + int(r["generated"]) for r in queue]
    waits = [left_of(r, int(r["generated"])) for r in queue]
    ms = iteration_ms(state, i, len(decoders), sum(each["known"] for each in decoders))
    row = [
        len(prefills),
        sum(each["known"] - each["computed"] for each in prefills),
        sum(lefts),
        sum(each["known"] + each["left"] - 1 for each in running),
        sum(work_of(each["known"], each["left"]) for each in running),
        sum(known),
        sum(waits),
        sum(work_of(k, left) for k, left in zip(known, waits, strict=True)),
        ms,
        next_left * ms / 1e3,
    ]
    for wanted in blocks:
        lacking = wanted - int(state.instances[i]["free_blocks"])
        free_in = iterations_to_free(state, i, lacking) * ms / 1e3 if lacking > 0 else 0.0
        row.append(free_in)
    return row
