"""servegym/Serve-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class ServeEnv(ServingEnv):
    """Serve: at every chance, choose a queue and the instance that takes its first request, or wait.

    ## Description

    The flagship: ordering, dispatch and headroom in one decision. Requests wait at the gateway, in one queue a tier,
    until the agent gives one to an instance with room (pull, `max_local_waiting=0`). Waiting keeps that room for a
    more urgent request. The agent is asked in every round (at an arrival, when something ended, every `hold_timer_s`)
    in which a pair is legal, and, after it placed a request, again at the same instant. Without a
    `cluster` there are 4 tiers and few seats, so that there is a choice.

    ## Action Space

    `Discrete(K * M + 1)`.

    | Action    | Meaning                                 | Legal if                                          |
    | --------- | --------------------------------------- | ------------------------------------------------- |
    | q * M + i | place the head of queue q at instance i | queue q has a head, and instance i accepts it now |
    | K * M     | wait until the next round               | always                                            |

    Waiting is never the only legal action: then nobody is asked. A masked action waits.

    ## Rewards

    By default `latency`, in which all tiers count alike; `weighted_latency` and `slo` weigh tier p by 2^-p. Whoever
    always waits is cut off at the horizon; with `horizon_s=None`, `NoProgressError` ends that after `max_hold_s` of
    the config.

    ## Version History

    * v0: Initial version.

    ## References

    - Beyond Binary Priorities (UC Berkeley): tiers, headroom and dispatch together, as system `n-tier`.
    - Llumnix: Sun et al., OSDI 2024: the binary predecessor.
    """

    kind = "serve"


class ServeVectorEnv(ServingVectorEnv):
    """ServeEnv many times over, natively (vector.py)."""

    kind = "serve"
