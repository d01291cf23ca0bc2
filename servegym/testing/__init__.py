"""Tests for what others write: conformance of a policy, and the conservation laws of a simulation.

    from servegym.testing import check_policy
    check_policy(my_policy)                 # AssertionError says what is wrong and how to see it again

servegym's own tests call the same. Nothing here needs pytest.
"""

from servegym.testing.clusters import Case, random_case
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.testing.policies import check_policy

__all__ = [
    "Case",
    "check_blocks",
    "check_conservation",
    "check_drained",
    "check_policy",
    "random_case",
]
