"""A target says on which side of its bound a figure must lie, and every measured name has one."""

import json

import pytest

from servegym.benchmarks import speed
from servegym.benchmarks.rows import Row
from servegym.benchmarks.targets import Target, judged


def test_a_floor_is_met_from_its_bound_up():
    floor = Target(3.0, "s", is_floor=True)
    assert floor.row("x", 3.0).met is True
    assert floor.row("x", 2.9).met is False
    assert floor.row("x", 3.0).target == ">= 3"


def test_a_ceiling_is_met_up_to_its_bound():
    assert Target(3.0, "s").row("x", 3.0) == Row("x", 3.0, "s", "<= 3", True)
    assert Target(3.0, "s").row("x", 3.1).met is False


def test_a_figure_without_a_target_is_an_error():
    with pytest.raises(KeyError):
        judged("no such figure", 1.0)


def test_work_counts_requests_per_second_of_its_median_time():
    work = speed.Work("round-robin", 2, n=1000)
    work.seconds = [0.1, 0.2, 0.5]
    assert work.per_s == pytest.approx(1000 / 0.2)
    assert work.ns == pytest.approx(0.2 / 1000 * 1e9)


def test_every_work_is_timed_as_often_as_asked():
    works = [speed.Work("round-robin", 2, n=200), speed.Work("power-of-two", 4, n=200)]
    speed.time_in_turns(works, repeats=3)
    assert [len(work.seconds) for work in works] == [3, 3]
    assert all(second > 0 for work in works for second in work.seconds)


def test_memory_grows_by_at_least_the_records_of_the_requests(monkeypatch, capsys):
    monkeypatch.setattr(speed, "LARGE", 20_000)
    monkeypatch.setattr(speed, "SMALL", 100)
    speed.print_memory()
    growth = json.loads(capsys.readouterr().out)
    assert growth["requests"] >= growth["summary"] >= 0
