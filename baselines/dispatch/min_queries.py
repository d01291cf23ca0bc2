"""Min-queries dispatch: the instance that was given the fewest requests in the last minute.

Counts the gateway's own placements only, so it needs no metrics of instances, and does not see how long requests are.
A placement counts until it is `window_s` old. Ties: rotate.
Source: the min-queries baseline of Astrolabe (Block).

Memory: the ring of placements (time, instance), then a count for every instance. The ring holds 65,536; above 1,092
requests a second the window is the last 65,536 of them, less than a minute.
"""

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances, now_s

RING = 65_536  # placements
OLDEST, SIZE, TIMES = 1, 2, 3  # memory[0] is the rotation's
PLACES, COUNTS = TIMES + RING, TIMES + 2 * RING
MANY = 2**62


@kernel
def forget_oldest(memory):
    """Take the oldest placement out of the ring and of its instance's count (mutates memory)."""
    oldest = int(memory[OLDEST])
    memory[COUNTS + int(memory[PLACES + oldest])] -= 1
    memory[OLDEST] = (oldest + 1) % RING
    memory[SIZE] -= 1


@kernel
def remember(memory, i, instant_s):
    """Add a placement (mutates memory)."""
    if memory[SIZE] == RING:
        forget_oldest(memory)
    end = int(memory[OLDEST] + memory[SIZE]) % RING
    memory[TIMES + end], memory[PLACES + end] = instant_s, i
    memory[COUNTS + i] += 1
    memory[SIZE] += 1


@dispatch_policy(
    source="Astrolabe's min queries in the last minute",
    params=(Param("window_s", 60, "s", 0, 1e6),),
    memory=lambda config: COUNTS + config.most_instances,
)
def min_queries(cluster, request, params, memory, rng):
    """Return the accepting instance with the fewest placements in the window."""
    since_s = now_s(cluster) - params[0]
    while memory[SIZE] > 0 and memory[TIMES + int(memory[OLDEST])] <= since_s:
        forget_oldest(memory)
    chosen, fewest = HOLD, MANY
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        count = memory[COUNTS + i]
        if count < fewest and is_accepting(cluster, request, i):
            chosen, fewest = i, count
    if chosen != HOLD:
        remember(memory, chosen, now_s(cluster))
    return chosen
