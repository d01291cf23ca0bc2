"""Kept runs: what a file has is not played again, whatever was lost of it or added to the study."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from servegym.baselines.learned import write_checkpoint
from servegym.baselines.learned.layouts import N_PRODUCTS
from servegym.experiments.kept_runs import kept_runs, play_missing, version_of


class Cell(NamedTuple):
    """A cell of a study that plays nothing real."""

    name: str
    seed: int


LETTERS = {"random": "x", "round-robin": "y", "least-requests": "z"}
X, Y, Z = "random", "round-robin", "least-requests"
CELLS = {Cell("a", 0): [X, Y], Cell("a", 1): [X, Y], Cell("b", 0): [X]}


class Player:
    """Plays by writing down what it was asked; a value is what only that cell and system have."""

    def __init__(self) -> None:
        self.asked = []

    def __call__(self, cell, systems):
        self.asked += [(*cell, system) for system in systems]
        values = [f"{cell.name}{cell.seed}{LETTERS[system]}" for system in systems]
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
    out.write_text("".join(line for line in lines if not line.startswith("round-robin,a1y")))
    player = Player()
    runs = play_missing({cell: [X, Y, Z] for cell in CELLS}, player, out)
    assert player.asked == [("a", 0, Z), ("a", 1, Y), ("a", 1, Z), ("b", 0, Y), ("b", 0, Z)]
    assert len(runs) == 9


def test_other_cells_and_systems_of_the_file_are_left_out(out):
    assert values(play(Cell("a", 1), [Y], out)) == ["a1y"]


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
            [
                {"system": s, "played_seed": k, "value": f"{LETTERS[s]}{k}"}
                for s in systems
                for k in (0, 1)
            ]
        )

    cells = {Cell("a", 0): [X, Y]}
    for _ in range(2):
        assert values(play_missing(cells, play_two, tmp_path / "f.csv")) == ["x0", "x1", "y0", "y1"]


def test_nothing_to_play_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="nothing to play"):
        play_missing({}, Player(), tmp_path / "f.csv")


def test_a_learned_policy_of_other_weights_is_played_again(tmp_path):
    cells = {Cell("a", 0): [f"learned:{tmp_path / 'p'}"]}
    for weight, n_asked in ((1.0, 1), (1.0, 0), (2.0, 1)):
        weights = np.full(N_PRODUCTS, weight, np.float32)
        card = {"decision": "dispatch", "architecture": "linear"}
        write_checkpoint(tmp_path / "p", {"weight": weights}, card)
        asked = []

        def play_one(cell, systems, asked=asked):
            asked += systems
            return pd.DataFrame({"system": systems, "value": 0})

        assert len(play_missing(cells, play_one, tmp_path / "runs.csv")) == 1
        assert len(asked) == n_asked


def test_runs_of_a_file_that_is_gone_are_none(tmp_path):
    runs = pd.DataFrame({"system": ["learned:/no/such", "random"], "engine": ["x", "y"]})
    runs["engine"] = runs["system"].map(version_of)
    runs.to_csv(tmp_path / "runs.csv", index=False)
    assert kept_runs(tmp_path / "runs.csv")["system"].tolist() == ["random"]
