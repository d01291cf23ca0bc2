"""Tests for what others write: conformance of a policy or an environment, and the conservation laws of a simulation.

    from servegym.testing import check_env, check_policy
    check_policy(my_policy)                 # AssertionError says what is wrong and how to see it again
    check_env("servegym/Serve-v0", load=0.9)  # or what makes your own: a class, a function, an environment

servegym's own tests call the same. Nothing here needs pytest.
"""

from servegym.testing.clusters import Case, random_case
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.testing.environments import check_env
from servegym.testing.policies import check_policy

__all__ = [
    "Case",
    "check_blocks",
    "check_conservation",
    "check_drained",
    "check_env",
    "check_policy",
    "random_case",
]
