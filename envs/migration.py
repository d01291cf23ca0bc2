"""servegym/Migration-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class MigrationEnv(ServingEnv):
    """Migration: at each control tick, choose from which instance to which a request moves.

    ## Description

    Every `control_interval_s` the agent may pair instances. From the source of a pair moves the request that `rule`
    picks: one that waits at once, one that decodes by copying its KV over a link while it goes on. A draining source
    moves all under `rule="n-tier"`. Arrivals are placed by `system`. With `moves_per_tick` > 1 the agent is asked
    again at the same instant, until it says nothing or no pair is left; no instance is source, or destination, twice
    in a tick.

    ## Action Space

    `Discrete(M * M + 1)`.

    | Action    | Meaning                        | Legal if                                         |
    | --------- | ------------------------------ | ------------------------------------------------ |
    | s * M + d | a request moves from s to d    | s active or draining, d active, `rule` finds one |
    | M * M     | nothing, and this tick is over | always                                           |

    A masked action is nothing.

    ## Rewards

    By default `latency`.

    ## Arguments

    | Argument             | Default    | What it is                                                               |
    | -------------------- | ---------- | ------------------------------------------------------------------------ |
    | `control_interval_s` | `1.0`      | seconds between ticks, which come while a request is in the system       |
    | `rule`               | `"n-tier"` | n-tier: the least urgent that fits moves; llumnix: the last that decodes |
    | `moves_per_tick`     | `1`        | pairs that the agent may choose at one tick                              |

    ## Version History

    * v0: Initial version.

    ## References

    - Llumnix: Sun et al., OSDI 2024: live migration in stages; baseline `llumnix`.
    - Beyond Binary Priorities (UC Berkeley): migration between extremes of freeness; baseline `n-tier`.
    """

    kind = "migration"


class MigrationVectorEnv(ServingVectorEnv):
    """MigrationEnv many times over, natively (vector.py)."""

    kind = "migration"
