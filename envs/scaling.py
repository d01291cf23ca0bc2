"""servegym/Scaling-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class ScalingEnv(ServingEnv):
    """TODO"""

    kind = "scaling"


class ScalingVectorEnv(ServingVectorEnv):
    """ScalingEnv many times over, natively (vector.py)."""

    kind = "scaling"
