"""servegym/Ordering-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class OrderingEnv(ServingEnv):
    """TODO"""

    kind = "ordering"


class OrderingVectorEnv(ServingVectorEnv):
    """OrderingEnv many times over, natively (vector.py)."""

    kind = "ordering"
