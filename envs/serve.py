"""servegym/Serve-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class ServeEnv(ServingEnv):
    """TODO"""

    kind = "serve"


class ServeVectorEnv(ServingVectorEnv):
    """ServeEnv many times over, natively (vector.py)."""

    kind = "serve"
