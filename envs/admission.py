"""servegym/Admission-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class AdmissionEnv(ServingEnv):
    """Admission: accept, hold or reject each request that arrives.

    ## Description

    The gate in front of the cluster. One step decides about one request: at its arrival, and again in every later
    round (when something ended, and every `hold_timer_s`) while it is held. What is accepted is placed by `system`.
    Rejecting early keeps the others within their SLO when more arrives than can be served.

    ## Action Space

    `Discrete(3)`; every action is legal at every step.

    | Action | Meaning                                    |
    | ------ | ------------------------------------------ |
    | 0      | accept: it enters its queue at the gateway |
    | 1      | hold: ask again in the next round          |
    | 2      | reject: it ends now, with its penalty      |

    Requests that can never fit an instance are rejected before the agent is asked.

    ## Rewards

    By default `slo`. A rejected request costs its weight at once, one that is served too late when it ends.
    Whoever always holds is cut off at the horizon; with `horizon_s=None`, `NoProgressError` ends that after
    `max_hold_s` of the config.

    ## Version History

    * v0: Initial version.

    ## References

    - The baselines are ours: `queue-cap`, `slo-shed`, `headroom-gated` (`servegym list policies`).
    """

    kind = "admission"


class AdmissionVectorEnv(ServingVectorEnv):
    """AdmissionEnv many times over, natively (vector.py)."""

    kind = "admission"
