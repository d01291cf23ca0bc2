"""servegym/Migration-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class MigrationEnv(ServingEnv):
    """TODO"""

    kind = "migration"


class MigrationVectorEnv(ServingVectorEnv):
    """MigrationEnv many times over, natively (vector.py)."""

    kind = "migration"
