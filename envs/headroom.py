"""servegym/Headroom-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class HeadroomEnv(ServingEnv):
    """TODO"""

    kind = "headroom"


class HeadroomVectorEnv(ServingVectorEnv):
    """HeadroomEnv many times over, natively (vector.py)."""

    kind = "headroom"
