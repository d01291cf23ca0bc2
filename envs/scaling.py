"""servegym/Scaling-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class ScalingEnv(ServingEnv):
    """Scaling: at each control tick, drain an instance, keep the fleet, or add one.

    ## Description

    Every `control_interval_s` the agent sizes the fleet between `min_instances` and `max_instances` of the config. An
    added instance is ready `startup_delay_s` later (5 s); a drained one takes nothing, finishes what it has and is
    gone. Give `cluster={"instances": 2, "max_instances": 8}`: by default there is nothing to add.

    ## Action Space

    `Discrete(3)`.

    | Action | Meaning                                                    | Legal if                         |
    | ------ | ---------------------------------------------------------- | -------------------------------- |
    | 0      | drain the active instance with the fewest running requests | more than `min_instances` active |
    | 1      | keep                                                       | always                           |
    | 2      | add: restore one that drains, else start one               | one is draining or absent        |

    A masked action keeps.

    ## Rewards

    By default `latency`. **No term charges for instances**, so adding always pays; subtract a price in a wrapper, for
    instance of the `cluster` feature `active` (times M) and `elapsed_s`. `result().summary()` has the instance-
    seconds.

    ## Arguments

    | Argument             | Default | What it is                                 |
    | -------------------- | ------- | ------------------------------------------ |
    | `control_interval_s` | `1.0`   | seconds between ticks, the first at time 0 |

    ## Version History

    * v0: Initial version.

    ## References

    - Llumnix: Sun et al., OSDI 2024, and Beyond Binary Priorities (UC Berkeley): scaling by mean freeness
      (`freeness`).
    """

    kind = "scaling"


class ScalingVectorEnv(ServingVectorEnv):
    """ScalingEnv many times over, natively (vector.py)."""

    kind = "scaling"
