"""Systems by name, with parameters, and of a user's policy."""

import pickle

import pytest

from servegym.baselines.systems import find_system, system_names
from servegym.simulator.policy import dispatch_policy, find_policy, policy_names


def test_every_dispatch_policy_is_a_system():
    assert system_names() == policy_names("dispatch")
    assert {"round-robin", "least-requests", "power-of-two", "random"} <= set(system_names())
    for name in system_names():
        system = find_system(name)
        assert (system.name, system.dispatch, dict(system.params)) == (name, name, {})
        assert system.policy is find_policy("dispatch", name)
        assert system.summary and system.source


def test_name_may_carry_parameters():
    system = find_system("power-of-two:d=4")
    assert system.name == "power-of-two:d=4"
    assert (system.dispatch, dict(system.params)) == ("power-of-two", {"d": 4.0})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("power-of-tow", "unknown system 'power-of-tow'; did you mean 'power-of-two'"),
        (
            "power-of-two:k=4",
            "unknown parameter 'k'; known: d",
        ),
        ("power-of-two:d=1000", r"d = 1000.0; must be in \[1, 64\]"),
        ("power-of-two:d=nan", "d = nan; must be in"),
        ("power-of-two:d", "'d' must be parameter=number"),
        ("power-of-two:d=many", "'d=many' must be parameter=number"),
        ("round-robin:d=2", "unknown parameter 'd'"),
        (3, "system = 3; must be a name or a dispatch policy"),
    ],
)
def test_bad_name_or_parameter_is_named(wanted, message: str):
    with pytest.raises(ValueError, match=message):
        find_system(wanted)


def test_policy_object_is_a_system():
    @dispatch_policy(source="test")
    def test_always_first(cluster, request, params, memory, rng):
        """Return instance 0."""
        return 0

    system = find_system(test_always_first)
    assert system.policy is test_always_first
    assert (system.name, system.summary) == ("test-always-first", "Return instance 0.")
    assert find_system(system) is system


def test_policy_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="must be a dispatch policy, not ordering"):
        find_system(find_policy("ordering", "sjf"))


def test_systems_of_one_name_are_equal_and_can_be_sent_to_another_process():
    system = find_system("power-of-two:d=4")
    assert system == find_system("power-of-two:d=4") != find_system("power-of-two")
    assert pickle.loads(pickle.dumps(system)) == system
    assert len({system, find_system("power-of-two:d=4"), find_system("random")}) == 2
