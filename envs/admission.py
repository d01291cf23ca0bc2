"""servegym/Admission-v0."""

from servegym.envs.serving_env import ServingEnv
from servegym.envs.vector import ServingVectorEnv


class AdmissionEnv(ServingEnv):
    """TODO"""

    kind = "admission"


class AdmissionVectorEnv(ServingVectorEnv):
    """AdmissionEnv many times over, natively (vector.py)."""

    kind = "admission"
