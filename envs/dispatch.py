"""servegym/Dispatch-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class DispatchEnv(ServingEnv):
    """TODO"""

    kind = "dispatch"


class DispatchVectorEnv(ServingVectorEnv):
    """DispatchEnv many times over, natively (vector.py)."""

    kind = "dispatch"
