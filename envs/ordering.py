"""servegym/Ordering-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class OrderingEnv(ServingEnv):
    """Ordering: choose which queue's first request goes next.

    ## Description

    Requests wait at the gateway, in one queue a tier, until an instance has room for them (pull,
    `max_local_waiting=0`). One step names the queue whose head is placed next; `system` chooses the instance. Asked
    again, at the same instant, while some instance accepts some head. With many seats or a low load queues are empty,
    one action is legal at each step and nothing depends on it: without a `cluster` there are 4 tiers and few seats.

    ## Action Space

    `Discrete(K)`.

    | Action | Meaning                   | Legal if                            |
    | ------ | ------------------------- | ----------------------------------- |
    | q      | place the head of queue q | some instance accepts that head now |

    A masked action is replaced by what `fallback` chooses.

    ## Rewards

    By default `latency`, in which all tiers count alike; `weighted_latency` and `slo` weigh tier p by 2^-p.

    ## Arguments

    | Argument   | Default  | What it is                                     |
    | ---------- | -------- | ---------------------------------------------- |
    | `fallback` | `"fcfs"` | the queue policy that acts for a masked action |

    ## Version History

    * v0: Initial version.

    ## References

    - DriftSched: FIFO, Priority, Weighted, SJF and Aging over tenant queues (docs/driftsched.md).
    - Beyond Binary Priorities (UC Berkeley): tiers 0 to K - 1, strict order between them.
    - Sheng et al., Fairness in Serving Large Language Models, OSDI 2024: the `virtual-token-counter`.
    """

    kind = "ordering"


class OrderingVectorEnv(ServingVectorEnv):
    """OrderingEnv many times over, natively (vector.py)."""

    kind = "ordering"
