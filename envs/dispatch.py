"""servegym/Dispatch-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class DispatchEnv(ServingEnv):
    """Dispatch: choose the instance for each request.

    ## Description

    The router's decision: a request has arrived and the agent places it at one of M instances, where it waits, runs
    and stays. Whom no instance accepts waits at the gateway and is asked about later. Join-the-shortest-queue,
    Llumnix's dispatch, Block, Astrolabe and `marginal` are hand-written answers.

    ## Action Space

    `Discrete(M)`.

    | Action | Meaning                | Legal if                                                                  |
    | ------ | ---------------------- | ------------------------------------------------------------------------- |
    | i      | place it at instance i | i is active, the request can ever fit it, `max_local_waiting` leaves room |

    A masked action is replaced by what `fallback` chooses.

    ## Rewards

    By default `latency`.

    ## Arguments

    | Argument   | Default            | What it is                                        |
    | ---------- | ------------------ | ------------------------------------------------- |
    | `fallback` | `"least-requests"` | the dispatch policy that acts for a masked action |

    The admission, queue, migration and scaling policies, the order and the estimator are those of `system` and
    `cluster`.

    ## Version History

    * v0: Initial version.

    ## References

    - Llumnix: Sun et al., Llumnix: Dynamic Scheduling for Large Language Model Serving, OSDI 2024.
    - Block and Astrolabe: predictive dispatch by look-ahead, SYSTOR 2026.
    - docs/marginal.md: what look-ahead dispatch is worth in this simulator.
    """

    kind = "dispatch"


class DispatchVectorEnv(ServingVectorEnv):
    """DispatchEnv many times over, natively (vector.py)."""

    kind = "dispatch"
