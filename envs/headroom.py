"""servegym/Headroom-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class HeadroomEnv(ServingEnv):
    """Headroom: at each control tick, set how much KV instances keep back for urgent tiers.

    ## Description

    The system (`"n-tier"` by default; 4 tiers in the enterprise mix unless you give others) reserves KV blocks for
    every tier present on an instance: H_p = floor(blocks * peak * exp(-decay * p / (K - 1))) for tier p of K. More
    headroom means that urgent requests find room, less that memory is used. Every `control_interval_s` the agent sets
    peak and decay for all parts of the system that have them (dispatch, migration); they hold until the next tick.

    ## Action Space

    `Box(-1, 1, (2,), float32)`. Every action is legal; NaN or one out of bounds raises `ValueError`. -1 stands for 0
    and 1 for the highest value, linearly; values are rounded to 6 decimals.

    | Num | Action | At -1 | At 1 | Unit                                        |
    | --- | ------ | ----- | ---- | ------------------------------------------- |
    | 0   | peak   | 0     | 0.5  | of an instance's KV blocks, kept for tier 0 |
    | 1   | decay  | 0     | 10   | exponent from the first tier to the last    |

    The paper's values, peak 0.2 and decay 2.5, are the action [-0.2, -0.5];
    `servegym.envs.actions.action_of([peak, decay])` gives that of others.

    ## Rewards

    By default `latency`, in which all tiers count alike; `weighted_latency` and `slo` weigh tier p by 2^-p.

    ## Information

    `action_mask` has one entry, always 1.

    ## Arguments

    | Argument             | Default | What it is                                 |
    | -------------------- | ------- | ------------------------------------------ |
    | `control_interval_s` | `1.0`   | seconds between ticks, the first at time 0 |

    `ValueError` if no part of `system` has headroom.

    ## Version History

    * v0: Initial version.

    ## References

    - Beyond Binary Priorities (UC Berkeley): exponential headroom by tier, which writes lambda for decay / (K - 1).
    """

    kind = "headroom"


class HeadroomVectorEnv(ServingVectorEnv):
    """HeadroomEnv many times over, natively (vector.py)."""

    kind = "headroom"
