"""Search spaces: ranges from what policies declare, names of values, and what mistakes are told."""

import pytest

from servegym.baselines.headroom import headroom_params
from servegym.baselines.systems import find_system
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Param
from servegym.tuning.labels import labels_of
from servegym.tuning.spaces import Dimension, read_space
from servegym.tuning.studies import STUDIES

TIERS_4 = ClusterConfig(tiers=4)


def one(system: str, text: str) -> Dimension:
    return read_space(system, [text], TIERS_4)[0]


def test_range_default_and_kind_come_from_the_declared_parameter():
    assert one("n-tier", "peak=0:0.5") == Dimension("peak", "number", 0.0, 0.5, default=0.2)
    assert one("power-of-two", "d=1:8") == Dimension("d", "whole", 1, 8, default=2)
    assert one("n-tier", "migration.threshold=.01:10:log") == Dimension(
        "migration.threshold", "number", 0.01, 10.0, is_log=True, default=0.3
    )


def test_without_a_range_all_that_is_declared_is_searched():
    assert one("n-tier", "peak") == Dimension("peak", "number", 0.0, 1.0, default=0.2)
    assert one("n-tier", "form").choices == ("exponential", "linear", "vector", "reserve")


def test_values_have_the_names_that_the_unit_gives_them():
    form = headroom_params(1)[1]
    assert labels_of(form) == {"exponential": 0, "linear": 1, "vector": 2, "reserve": 3}
    whole = Param("samples", 0, "instances, 0 for all", 0, 8, is_whole=True)
    assert labels_of(whole) == {}


@pytest.mark.parametrize("text", ["form=linear,exponential", "form=1,0"])
def test_named_values_are_given_by_name_or_number_and_set_as_numbers(text: str):
    form = one("n-tier", text)
    assert form.choices == ("linear", "exponential") and form.default == "exponential"
    assert [form.setting(name) for name in form.choices] == ["1", "0"]


def test_default_outside_the_range_is_none():
    assert one("n-tier", "peak=.3:.6").default is None
    assert one("n-tier:peak=.4", "peak=.3:.6").default == 0.4  # what the system sets


def test_parts_and_fields_and_tiers_can_be_searched():
    order = one("least-requests", "order=fcfs,sjf")
    assert (order.choices, order.default) == (("fcfs", "sjf"), "fcfs")
    assert one("n-tier", "rebalance_interval_s=.01:1").default == 0.05
    assert one("n-tier", "tiers=1:10") == Dimension("tiers", "whole", 1, 10, default=4)


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        ("n-tier", "peek=0:1", "unknown parameter 'peek'; did you mean 'peak'"),
        ("n-tier", "migration.treshold=0:1", "did you mean 'migration.threshold'"),
        ("n-tier", "peak=0:2", r"peak = 2\.0; must be in \[0, 1\]"),
        ("n-tier", "peak=.5:.1", "LOW must be less than HIGH"),
        ("n-tier", "peak=0:1:log", "on a log scale LOW must be > 0"),
        ("n-tier", "peak=a:b", "must be LOW:HIGH or LOW:HIGH:log"),
        ("n-tier", "peak=0:1:lin", "must be LOW:HIGH or LOW:HIGH:log"),
        ("n-tier", "peak=0:nan", "must be LOW:HIGH"),
        ("n-tier", "peak=", "has no range"),
        ("n-tier", "peak=.1,.2", "must be LOW:HIGH, its values have no names"),
        ("n-tier", "form=exponential,liner", "did you mean 'linear'"),
        ("n-tier", "form=linear", "two different choices or more"),
        ("n-tier", "migration.threshold", "give the range to search"),
        ("n-tier", "tiers=0:3", r"tiers = 0\.0; must be in \[1, 10\]"),
        ("power-of-two", "d=1:2.5", "d = 2.5; must be a whole number"),
        ("least-requests", "order=fcfs,sfj", "unknown ordering policy 'sfj'; did you mean 'sjf'"),
        ("n-teer", "peak=0:1", "unknown system 'n-teer'; did you mean 'n-tier'"),
    ],
)
def test_mistakes_are_told_with_what_was_expected(system: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_space(system, [text], TIERS_4)


def test_setting_given_twice_and_empty_space_are_errors():
    with pytest.raises(ValueError, match="peak is given twice"):
        read_space("n-tier", ["peak=0:1", "peak=0:.5"], TIERS_4)
    with pytest.raises(ValueError, match="nothing to search"):
        read_space("n-tier", [], TIERS_4)


@pytest.mark.parametrize("name", STUDIES)
def test_named_studies_hold_their_defaults_and_their_ends_are_systems(name: str):
    study = STUDIES[name]
    config = ClusterConfig(**study.cluster)
    for dimension in read_space(study.system, study.params, config):
        assert dimension.has(dimension.default)
        if dimension.key == "tiers":
            continue
        ends = dimension.choices or (dimension.low, dimension.high)
        for value in ends:
            find_system(f"{study.system}:{dimension.key}={dimension.setting(value)}")
