"""Systems by name, with parameters and parts, and of a user's policy."""

import pickle

import numpy as np
import odd_systems  # noqa: F401  (registers the policies named test-...)
import pytest

from servegym.baselines import systems
from servegym.baselines.learned import shipped_names
from servegym.baselines.saturation import alone
from servegym.baselines.simulate import replay, simulate
from servegym.baselines.system_fields import FIELDS
from servegym.baselines.system_table import SYSTEMS
from servegym.baselines.systems import PARTS, find_system, system_names
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import SIGNATURES, dispatch_policy, find_policy, policy_names
from servegym.simulator.result import Result
from servegym.traces import generate


@pytest.fixture
def with_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a system of test policies into the table: dispatch and order both declare `rate`."""
    entry = {
        "summary": "A test.",
        "source": "test",
        "dispatch": "test-rated",
        "order": "test-aged",
        "order_params": {"rate": 3},
        "max_local_waiting": 0,
    }
    monkeypatch.setitem(systems.SYSTEMS, "test-parts", entry)


def settings_of(wanted: str) -> dict:
    """Return what a system sets over the config."""
    return dict(find_system(wanted).settings)


def test_every_dispatch_policy_is_a_system():
    assert {"round-robin", "least-requests", "power-of-two", "random"} <= set(system_names())
    learned = {f"learned:{name}" for name in shipped_names()}
    assert set(system_names()) == {*SYSTEMS, *policy_names("dispatch"), *learned}
    for name in set(system_names()) - set(SYSTEMS) - learned:
        system = find_system(name)
        assert (system.name, system.dispatch, system.params, system.settings) == (
            name,
            name,
            {},
            {},
        )
        assert system.policy is find_policy("dispatch", name)
        assert system.summary and system.source


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_named_system_exists_and_runs_with_one_tier_and_no_tenants(name: str):
    trace = generate("azure-conv", 200, 12.0, 1)
    result = simulate(trace, ClusterConfig(instances=2), name)
    system = find_system(name)
    assert system.summary.endswith(".") and system.source
    assert result.summary()["finished"] == 200
    for field, value in system.settings.items():
        assert getattr(result.config, field) == value


def tight(name: str) -> Result:
    """Return what a system makes of three tiers on instances short of memory."""
    trace = generate("azure-conv", 600, 12.0, 1).assign_tiers([0.2, 0.3, 0.5], seed=0)
    return simulate(trace, None, name, instances=3, scenario="tight", tiers=3, load=1.2)


@pytest.mark.parametrize("name", ["n-tier", "llumnix", "llumnix-later"])
def test_systems_with_migration_move_requests(name: str):
    assert len(tight(name).moves) > 0
    assert len(tight(f"{name}:migration=none").moves) == 0


def test_orders_of_driftsched_are_not_fifo():
    fifo = finish_order("driftsched-fifo")
    others = [name for name in SYSTEMS if name.startswith("driftsched-") and "fifo" not in name]
    assert len(others) == 4
    for name in others:
        assert finish_order(name) != fifo, name


def finish_order(name: str) -> list[int]:
    """Return who finishes, in order."""
    return np.argsort(tight(name).records["finish_ps"], kind="stable").tolist()


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_name_that_is_also_a_dispatch_policys_uses_that_policy(name: str):
    # else the policy could not be named
    assert SYSTEMS[name]["dispatch"] == name or name not in policy_names("dispatch")


def test_no_parameter_is_named_like_a_part_or_a_field():
    # else the text behind the colon would mean two things
    for kind in SIGNATURES:
        for policy in (find_policy(kind, name) for name in policy_names(kind)):
            assert not {param.name for param in policy.params} & {*PARTS, *FIELDS}


def test_a_system_may_not_set_what_load_1_depends_on(with_parts):
    engine = alone(ClusterConfig(), ClusterConfig().fleet_profiles[0].name)
    config = ClusterConfig(instances=3)
    assert alone(find_system("test-parts").configure(config), str(engine.profile)) == engine
    assert not {"instances", "profile", "engine", "kv_blocks", "bypass_blocked"} & set(FIELDS)


def test_parts_go_over_the_config_and_the_text_over_both(with_parts):
    config = ClusterConfig(order="test-aged", order_params={"rate": 5, "base": 2}, tiers=3)
    mine = find_system("test-parts").configure(config)
    # the same policy: the user's parameters stay below those that the system sets
    assert (mine.order, mine.order_params) == ("test-aged", {"rate": 3, "base": 2})
    assert (mine.max_local_waiting, mine.tiers) == (0, 3)
    text = find_system("test-parts:order.rate=7,max_local_waiting=none").configure(config)
    assert (text.order_params, text.max_local_waiting) == ({"rate": 7, "base": 2}, None)
    # another policy: its parameters are not the user's
    other = ClusterConfig(order="test-based", order_params={"base": 2})
    assert find_system("test-parts").configure(other).order_params == {"rate": 3}


def test_a_parameter_is_set_in_every_part_that_declares_it(with_parts):
    both = find_system("test-parts:rate=.5")
    assert both.params == {"rate": 0.5} and both.settings["order_params"] == {"rate": 0.5}
    one = find_system("test-parts:order.rate=.5")
    assert one.params == {} and one.settings["order_params"] == {"rate": 0.5}
    assert find_system("test-parts:dispatch.rate=.5").params == {"rate": 0.5}
    # what was swapped out does not take it; order of the text does not matter
    swapped = find_system("test-parts:rate=.5,order=fcfs")
    assert swapped.params == {"rate": 0.5}
    assert "order_params" not in swapped.settings and swapped.settings["order"] == "fcfs"


def test_a_part_is_swapped_by_name_and_starts_from_its_defaults(with_parts):
    assert settings_of("test-parts:order=sjf") == {"order": "sjf", "max_local_waiting": 0}
    assert settings_of("least-requests:order=sjf,estimator=oracle") == {
        "order": "sjf",
        "estimator": "oracle",
    }
    assert settings_of("least-requests:admission=none,queue_by=none,metrics_interval_s=.5") == {
        "admission": None,
        "queue_by": "none",
        "metrics_interval_s": 0.5,
    }
    system = find_system("test-parts:dispatch=power-of-two,d=3")
    assert (system.dispatch, system.params) == ("power-of-two", {"d": 3})


def test_a_saved_run_of_a_system_is_repeated_with_the_config_it_resolved_to(with_parts, tmp_path):
    trace = generate("azure-conv", 100, 12.0, 1)
    result = simulate(trace, ClusterConfig(instances=2), "test-parts:rate=.5")
    result.save(tmp_path)
    again = replay(tmp_path)
    assert again.config == result.config and again.config.max_local_waiting == 0
    assert (again.system, again.dispatch, again.params) == (
        "test-parts:rate=.5",
        "test-rated",
        {"rate": 0.5},
    )


def test_load_1_is_the_same_for_every_system(with_parts):
    trace = generate("azure-conv", 100, 12.0, 1)
    rates = {
        simulate(trace, system=system, instances=2, load=0.9).trace.mean_rate_per_s
        for system in ("least-requests", "test-parts", "random:max_instances=5")
    }
    assert len(rates) == 1


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
        (
            "least-requests:order.rate=1",
            "sets no order, only dispatch; write order=NAME,order.rate=1",
        ),
        ("least-requests:ordre.rate=1", "no part 'ordre'; did you mean 'order'"),
        ("least-requests:order=sfj", "unknown ordering policy 'sfj'; did you mean 'sjf'"),
        ("least-requests:ordr=sjf", "unknown parameter 'ordr'; did you mean 'order'"),
        ("least-requests:dispatch=randm", "unknown dispatch policy 'randm'; did you mean 'random'"),
        ("power-of-two:dispatch.k=4", "unknown parameter 'dispatch.k'; known: d"),
        ("random:estimator=constant,tokens=0", "constant: tokens = 0.0; must be in"),
        ("random:rebalance_interval_s=0", "rebalance_interval_s = '0'; input should be greater"),
        ("random:queue_by=user", "queue_by = 'user'; input should be 'none', 'tier' or 'tenant'"),
        (
            "random:instances=8",
            r"instances is the cluster's, .* give it as an option \(--instances\)",
        ),
        ("n-tier:peak=.3, peak=.4", "peak is set twice"),
        ("random:migration=none,migration=llumnix", "migration is set twice"),
        ("random:order=fcsf", "unknown ordering policy 'fcsf'; did you mean 'fcfs'"),
        ("random:order=none", "known: fcfs, priority, aging"),
        ("", "unknown system ''"),
        (3, "system = 3; must be a name or a dispatch policy"),
    ],
)
def test_bad_name_or_parameter_is_named(wanted, message: str):
    with pytest.raises(ValueError, match=message):
        find_system(wanted)


def test_what_can_be_set_is_listed_once():
    with pytest.raises(ValueError, match="unknown parameter 'xyz'; known:") as caught:
        find_system("n-tier:xyz=1")
    listed = str(caught.value).partition("known: ")[2].split(", ")
    assert {"peak", "dispatch", "order", "queue_by"} < set(listed) and len(listed) == len({*listed})


def test_policy_object_is_a_system():
    @dispatch_policy(source="test", name="test-always-first")
    def always_first(cluster, request, params, memory, rng):
        """Return instance 0."""
        return 0

    system = find_system(always_first)
    assert system.policy is always_first
    assert (system.name, system.summary) == ("test-always-first", "Return instance 0.")
    assert find_system(system) is system


def test_policy_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="must be a dispatch policy, not ordering"):
        find_system(find_policy("ordering", "sjf"))


def test_systems_of_one_name_are_equal_and_can_be_sent_to_another_process():
    system = find_system("power-of-two:d=4,order=sjf")
    assert system == find_system("power-of-two:d=4,order=sjf") != find_system("power-of-two")
    assert pickle.loads(pickle.dumps(system)) == system
    assert len({system, find_system("power-of-two:d=4,order=sjf"), find_system("random")}) == 2
