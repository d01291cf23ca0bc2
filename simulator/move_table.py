"""The ledger of moves as a table: every move that began, in the order in which they ended, those under way last."""

from typing import TYPE_CHECKING

import numpy as np

from servegym.simulator.request_table import categories, integers
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.state import COLD, COMMITTED, LEDGER, OUTCOMES, UNDER_WAY, State

if TYPE_CHECKING:
    import pandas as pd

    from servegym.simulator.result import Result

KINDS = ("cold", "live")


def ledger_of(state: State) -> np.ndarray:
    """Return state.LEDGER of every move that began, as a copy; one under way, as at a horizon, has end_ps = -1."""
    control = state.control[0]
    moves = state.moves[: int(control["n_moves"])]
    under_way: np.ndarray = np.zeros(len(moves), LEDGER)
    for name in ("start_ps", "stop_ps", "request", "source", "destination"):
        under_way[name] = moves[name]
    under_way["blocks"], under_way["stages"] = moves["copied_blocks"], moves["stage"]
    under_way["end_ps"], under_way["outcome"] = -1, UNDER_WAY
    return np.concatenate([state.ledger[: int(control["n_ledger"])], under_way])


def move_table(result: "Result") -> "pd.DataFrame":
    """Return one row a move.

    kind: cold (a waiting request, at once) or live. outcome: state.OUTCOMES. downtime_s: from the stop of a live move
    to its end, NaN if it never stopped the request. blocks: KV blocks sent. stages: stages begun. Of a move under way
    when the result was taken, end_s and downtime_s are NaN.
    """
    import pandas as pd

    ledger = result.ledger
    stop_s = np.where(ledger["stop_ps"] >= 0, ledger["stop_ps"] / PS_PER_S, np.nan)
    end_s = np.where(ledger["end_ps"] >= 0, ledger["end_ps"] / PS_PER_S, np.nan)
    is_live = ledger["outcome"] != COLD
    return pd.DataFrame(
        {
            "request_id": integers(ledger, "request"),
            "source": integers(ledger, "source"),
            "destination": integers(ledger, "destination"),
            "kind": categories(is_live.astype(np.int8), KINDS),
            "outcome": categories(ledger["outcome"].astype(np.int8), OUTCOMES),
            "start_s": ledger["start_ps"] / PS_PER_S,
            "end_s": end_s,
            "downtime_s": np.where(is_live, end_s - stop_s, 0.0),
            "blocks": integers(ledger, "blocks"),
            "stages": integers(ledger, "stages"),
        }
    )


def move_counts(result: "Result") -> dict[str, int]:
    """Return how many moves came about, were aborted, and were refused at once; those under way are neither."""
    outcomes = result.ledger["outcome"]
    done = int(((outcomes == COLD) | (outcomes == COMMITTED)).sum())
    return {
        "moves": done,
        "aborted_moves": int((outcomes != UNDER_WAY).sum()) - done,
        "refused_moves": int(result.control[0]["n_refused_moves"]),
    }
