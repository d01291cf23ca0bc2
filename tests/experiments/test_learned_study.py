"""The learned study: what plays, and tables whose numbers are worked by hand."""

import numpy as np
import pandas as pd
import pytest

from servegym.experiments.kept_runs import play_missing
from servegym.experiments.learned_study import Cell, Options, main, play
from servegym.experiments.learned_tables import (
    KEYS,
    PREDICTED,
    UNKNOWN,
    against_first_table,
    best_table,
    counts_table,
    every_rival_table,
    learned_system,
    metric_table,
    report,
    rivals,
    spots_of,
)


def test_every_rival_knows_as_much_as_the_learned():
    assert len(rivals(PREDICTED)) == len(rivals(UNKNOWN)) == 9
    assert rivals(PREDICTED)["block, residual"] == (
        "block:estimator=noisy,error=0.5,remaining=residual"
    )
    assert rivals(UNKNOWN)["marginal, plug-in"] == "marginal:estimator=constant,remaining=plug-in"
    assert learned_system("a", PREDICTED) == "learned:a,estimator=noisy,error=0.5"
    assert learned_system("a", UNKNOWN) == "learned:a,estimator=constant"


def test_cells_are_all_places_of_every_seed_and_a_file_once(tmp_path):
    options = Options(seeds=3, trace=tmp_path / "t.csv", learned=("a", "b"))
    cells = options.cells()
    places = 4 * 2 * 3 * 2  # fleets, scenarios, loads, lengths
    assert len(cells) == 3 * places * 2 + places
    assert {cell.requests for cell in cells if cell.instances == 64} == {20_000, 0}
    assert {cell.seeds for cell in cells if cell.workload.endswith("t.csv")} == {10}
    assert all(len(systems) == 9 + 2 for systems in cells.values())


def test_a_file_can_be_played_alone(tmp_path):
    cells = Options(seeds=3, trace=tmp_path / "t.csv", workloads=()).cells()
    assert {(cell.workload, cell.seeds) for cell in cells} == {(str(tmp_path / "t.csv"), 10)}
    with pytest.raises(ValueError, match=r"workloads = \(\); name one, or a --trace"):
        Options(workloads=()).cells()


def test_unknown_lengths_are_named():
    with pytest.raises(ValueError, match=r"lengths = 'oracle'; must be of 'error \.5', 'none'"):
        Options(lengths=("oracle",)).cells()


def test_policies_can_be_left_out():
    options = Options(seeds=1, left_out=("marginal", "block"))
    assert {len(systems) for systems in options.cells().values()} == {3 + 2}  # astrolabe, twice
    with pytest.raises(ValueError, match="left_out = 'margnal'; did you mean 'marginal'"):
        Options(left_out=("margnal",)).cells()


def hand_made(learned=(3.0, 3.5), best=(4.0, 4.0), other=(5.0, 5.0), scenario="tight"):
    """Return runs of two seeds at one place: least-requests is best."""
    rows = []
    values = {
        "least-requests": best,
        "power-of-two": other,
        learned_system("x/a.st", UNKNOWN): learned,
    }
    for system, own in values.items():
        for seed, value in enumerate(own):
            row = {"system": system, "played_seed": seed} | dict.fromkeys(KEYS, value)
            rows.append(row | {"workload": "w", "scenario": scenario, "length": UNKNOWN})
    return pd.DataFrame(rows).assign(instances=4, load=0.9)


def test_best_rival_is_the_one_with_least_mean_e2e():
    (spot,) = spots_of(hand_made())
    assert spot.best == "least-requests"
    assert spot.ratio("x/a.st", spot.best) == pytest.approx(100 * -0.75 / 4)
    # differences -1.0, -.5: mean -.75, s = .354; t(.975, 1) = 12.7 times s / sqrt(2) = 3.18: no side of 0
    difference = spot.difference("x/a.st", "least-requests")
    assert (difference.low, difference.high) == pytest.approx((-3.926, 2.426), abs=1e-3)


def test_counts_say_better_only_where_the_interval_excludes_zero():
    decided = hand_made(learned=(3.0, 3.04))  # -1, -.96: -.98 -+ 12.706 * .0283 / 1.414 = .254
    worse = hand_made(learned=(5.0, 5.01), scenario="default")
    text = counts_table(spots_of(pd.concat([decided, worse])), ["x/a.st"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert rows[0][:6] == ["a", "default", "1", "0 (0 %)", "0", "1"]
    assert rows[1][:6] == ["a", "tight", "1", "1 (100 %)", "0", "0"]
    assert rows[1][6] == "-24.5"


def test_other_learned_dispatchers_are_set_beside_the_first():
    runs = hand_made(learned=(4.0, 4.0))
    other = runs[runs["system"] == learned_system("x/a.st", UNKNOWN)]
    other = other.assign(system=learned_system("b", UNKNOWN), **dict.fromkeys(KEYS, 5.0))
    text = against_first_table(spots_of(pd.concat([runs, other])), ["x/a.st", "b"])
    row = [cell.strip() for cell in text.splitlines()[2].split("|")[1:-1]]
    assert row == ["b", UNKNOWN, "1", "0 (0 %)", "0", "1", "+25.0", "+25.0 .. +25.0"]


def test_places_are_counted_against_every_rival():
    decided = hand_made(learned=(3.0, 3.04))
    worse = hand_made(learned=(6.0, 6.01), other=(9.0, 9.0), scenario="default")
    text = every_rival_table(spots_of(pd.concat([decided, worse])), ["x/a.st"])
    head, _, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    assert head == ["learned", "- least-requests", "- power-of-two"]
    assert row == ["a", "1, 0, 1", "2, 0, 0"]


def test_tables_show_differences_to_every_rival_that_played():
    spots = spots_of(hand_made(learned=(3.0, 3.04)))
    assert "**-24.5**" in best_table(spots, ["x/a.st"])
    full = metric_table(spots, "x/a.st", "ttft_p99_s")
    assert "- least-requests | - power-of-two |" in full
    assert "**-0.98 [-1.23, -0.73]**" in full
    page = report(hand_made(), ["x/a.st"])
    assert page.count("### a: ") == 4


def test_seeds_that_not_all_have_played_are_left_out():
    # Of seeds 0 and 1 the learned has played 1 only: 3.5 - 4 of 4 s, not the mean of 3 and 3.5.
    runs = hand_made()
    is_lost = runs["system"].str.startswith("learned:") & (runs["played_seed"] == 0)
    (spot,) = spots_of(runs.loc[~is_lost, :])
    assert spot.ratio("x/a.st", "least-requests") == pytest.approx(-12.5)


def test_as_kept_without_runs_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"--as-kept: .*none.csv has no runs of this version"):
        main(["--as-kept", "--out", str(tmp_path / "none.csv"), "--learned", "a"])


def test_play_gives_a_row_a_system_with_all_measures(tmp_path):
    cell = Cell("azure-conv", "tight", 2, 0.9, UNKNOWN, 3, 1, 60)
    runs = play_missing({cell: ["least-requests", "power-of-two"]}, play, tmp_path / "runs.csv")
    assert runs["played_seed"].tolist() == [3, 3]
    assert np.isfinite(runs.filter(KEYS).to_numpy()).all()
    assert len(play_missing({cell: ["least-requests"]}, play, tmp_path / "runs.csv")) == 1


def test_a_trace_that_cannot_be_played_is_refused_before_anything_is_played(tmp_path):
    file, kept = tmp_path / "t.csv", tmp_path / "runs.csv"
    sizes = ["--seeds", "1", "--requests", "50", "--instances", "2", "--loads", "0.9"]
    options = [*sizes, "--lengths", UNKNOWN, "--trace", str(file), "--out", str(kept)]
    with pytest.raises(FileNotFoundError, match=r"t\.csv"):
        main(options)
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,10\n1,10,10\n")
    with pytest.raises(ValueError, match="2 requests"):
        main(options)
    assert not kept.exists()


def test_without_learned_dispatchers_rivals_play_alone(tmp_path, capsys):
    sizes = ["--seeds", "1", "--requests", "50", "--instances", "2", "--loads", "0.9"]
    places = ["--workloads", "azure-conv", "--scenarios", "tight", "--lengths", UNKNOWN]
    main([*sizes, *places, "--out", str(tmp_path / "runs.csv")])
    assert capsys.readouterr().out == ""
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 9


def test_report_needs_somebody_learned():
    with pytest.raises(ValueError, match="learned"):
        report(hand_made(), [])
