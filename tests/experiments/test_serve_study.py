"""The Serve study: its table from few short runs."""

import pytest

from servegym.experiments.compare import compare
from servegym.experiments.serve_study import CLUSTER, PLACES, SHARE, difference_text, main
from servegym.experiments.statistics import Interval


def test_every_place_has_a_row_whose_share_is_that_of_a_comparison(capsys):
    main(["--seeds", "2", "--requests", "150"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == len(PLACES)
    runs = compare(
        ["learned:serve-goodput"],
        workload="azure-conv",
        arrivals="poisson",
        load=0.95,
        tier_mix="enterprise",
        seeds=2,
        n_requests=150,
        progress=False,
        **CLUSTER,
    ).runs
    assert rows[0][0] == "| azure-conv, tight, 0.95, poisson"
    assert rows[0][1] == "serve-goodput"
    assert rows[0][4] == f"{runs[SHARE].mean():.4f}"


def test_places_can_be_chosen(capsys):
    main(["--seeds", "2", "--requests", "150", "--places", "5", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| azure-conv, tight, 1.05, poisson",
        "| sharegpt, tight, 0.95, poisson",
    ]
    with pytest.raises(ValueError, match=r"places = 8; must be in 0 .. 7"):
        main(["--places", "8"])


def test_a_decided_difference_is_bold():
    assert difference_text(Interval(0.1, 0.05, 0.15, 3)) == "**+0.1000 [+0.0500, +0.1500]**"
    assert difference_text(Interval(0.1, -0.05, 0.25, 3)) == "+0.1000 [-0.0500, +0.2500]"
