"""Kept runs: what a file has is not played again, whatever was lost of it or added to the study."""

from typing import NamedTuple

import pandas as pd
import pytest

from servegym.experiments.kept_runs import kept_runs, play_missing, version_of


class Cell(NamedTuple):
    """A cell of a study that plays nothing real."""

    name: str
    seed: int


CELLS = {Cell("a", 0): ["x", "y"], Cell("a", 1): ["x", "y"], Cell("b", 0): ["x"]}


class Player:
    """Plays by writing down what it was asked; a value is what only that cell and system have."""

    def __init__(self) -> None:
        self.asked = []

    def __call__(self, cell, systems):
        self.asked += [(*cell, system) for system in systems]
        values = [f"{cell.name}{cell.seed}{system}" for system in systems]
        return pd.DataFrame({"system": systems, "value": values})


def play(cell, systems, out, player=None):
    return play_missing({cell: systems}, player or Player(), out)


@pytest.fixture
def out(tmp_path):
    """A file that has all of CELLS."""
    runs = play_missing(CELLS, Player(), tmp_path / "new" / "runs.csv")
    assert len(runs) == 5
    return tmp_path / "new" / "runs.csv"


def values(runs):
    return sorted(runs["value"])


def test_finished_cells_are_not_played_again(out):
    player = Player()
    runs = play_missing(CELLS, player, out)
    assert player.asked == []
    assert values(runs) == ["a0x", "a0y", "a1x", "a1y", "b0x"]


def test_only_the_systems_that_a_cell_lacks_are_played(out):
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(line for line in lines if "a1y" not in line))
    player = Player()
    runs = play_missing({cell: ["x", "y", "z"] for cell in CELLS}, player, out)
    assert player.asked == [
        ("a", 0, "z"),
        ("a", 1, "y"),
        ("a", 1, "z"),
        ("b", 0, "y"),
        ("b", 0, "z"),
    ]
    assert len(runs) == 9


def test_other_cells_and_systems_of_the_file_are_left_out(out):
    assert values(play(Cell("a", 1), ["y"], out)) == ["a1y"]


def test_a_row_that_stands_twice_counts_once(out):
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join([*lines, lines[1]]))
    assert len(play_missing(CELLS, Player(), out)) == 5


def test_runs_of_another_version_are_played_again(out):
    kept = pd.read_csv(out)
    kept.assign(engine="another").to_csv(out, index=False)
    assert kept_runs(out).empty
    player = Player()
    assert values(play_missing(CELLS, player, out)) == ["a0x", "a0y", "a1x", "a1y", "b0x"]
    assert len(player.asked) == 5


def test_seeds_of_one_cell_are_all_kept(tmp_path):
    def play_two(cell, systems):
        return pd.DataFrame(
            [{"system": s, "played_seed": k, "value": f"{s}{k}"} for s in systems for k in (0, 1)]
        )

    cells = {Cell("a", 0): ["x", "y"]}
    for _ in range(2):
        assert values(play_missing(cells, play_two, tmp_path / "f.csv")) == ["x0", "x1", "y0", "y1"]


def test_nothing_to_play_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="nothing to play"):
        play_missing({}, Player(), tmp_path / "f.csv")


def test_version_of_a_baseline_is_the_simulators():
    assert version_of("least-requests") == version_of("block:estimator=oracle")
