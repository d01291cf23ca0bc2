"""Reading measured iterations: columns by name, every fault with its row, and the recipe of the docs."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_iterations import draw, write_csv

from servegym.simulator.measured_iterations import check_iterations, read_iterations

RECIPE = Path(__file__).resolve().parents[2] / "docs" / "calibration.md"
GOOD = {
    "prefill_tokens": 100,
    "decode_seqs": 3,
    "kv_tokens": 900,
    "prefill_attn": 5050.0,
    "t_ms": 9.5,
}


def rows(**changes) -> dict[str, list]:
    """Columns of three rows, the second changed; None leaves a column out."""
    changed = {name: [value, changes.get(name, value), value] for name, value in GOOD.items()}
    more = {name: [0, value, 0] for name, value in changes.items() if name not in GOOD}
    return {name: c for name, c in (changed | more).items() if changes.get(name, c) is not None}


def test_columns_are_found_by_name_and_others_ignored(tmp_path: Path):
    columns = draw(n=30)
    path = write_csv(
        tmp_path / "steps.csv", {"kind": np.full(30, "x"), **dict(reversed(columns.items()))}
    )
    read = read_iterations(path)
    np.testing.assert_array_equal(read.prefill_tokens, columns["prefill_tokens"])
    np.testing.assert_array_equal(read.decode_seqs, columns["decode_seqs"])
    np.testing.assert_array_equal(read.kv_tokens, columns["kv_tokens"])
    np.testing.assert_array_equal(read.prefill_attention, columns["prefill_attn"])
    np.testing.assert_array_equal(read.t_ms, columns["t_ms"])
    assert read.kinds[:3].tolist() == ["decode", "prefill", "mixed"]


def test_kv_and_attention_are_computed_from_mean_context_and_prefix(tmp_path: Path):
    columns = draw(n=30)
    given = read_iterations(write_csv(tmp_path / "a.csv", columns))
    computed = read_iterations(
        write_csv(tmp_path / "b.csv", columns, ("kv_tokens", "prefill_attn"))
    )
    np.testing.assert_array_equal(computed.kv_tokens, given.kv_tokens)
    np.testing.assert_array_equal(computed.prefill_attention, given.prefill_attention)


def test_all_missing_columns_are_listed(tmp_path: Path):
    path = write_csv(
        tmp_path / "steps.csv", draw(n=3), ("decode_ctx", "kv_tokens", "t_ms", "decode_seqs")
    )
    message = "steps.csv has no column decode_seqs, kv_tokens or decode_ctx, t_ms$"
    with pytest.raises(ValueError, match=message):
        read_iterations(path)


FAULTS = [
    ({"t_ms": float("nan")}, "t_ms[1] = nan; must be finite and > 0"),
    ({"t_ms": 0}, "t_ms[1] = 0; must be finite and > 0"),
    ({"t_ms": -2.5}, "t_ms[1] = -2.5; must be finite and > 0"),
    ({"t_ms": "fast"}, "t_ms[1] = 'fast'; must be a number"),
    ({"t_ms": ""}, "t_ms[1] is missing"),
    ({"prefill_tokens": -1}, "prefill_tokens[1] = -1; must be >= 0"),
    ({"prefill_tokens": 1.5}, "prefill_tokens[1] = 1.5; must be a whole number"),
    ({"prefill_tokens": 0, "decode_seqs": 0}, "prefill_tokens[1] = 0; must be > 0 where decode_seqs is 0"),
    ({"decode_seqs": float("nan")}, "decode_seqs[1] = nan; must be a finite number"),
    ({"decode_seqs": 901}, "kv_tokens[1] = 900; must be >= decode_seqs"),
    ({"decode_seqs": 0}, "kv_tokens[1] = 900; must be 0 where decode_seqs is 0"),
    ({"prefill_attn": 99.5}, "prefill_attn[1] = 99.5; must be >= prefill_tokens"),
    ({"prefill_tokens": 0}, "prefill_attn[1] = 5050; must be 0 where prefill_tokens is 0"),
    ({"prefill_attn": float("inf")}, "prefill_attn[1] = inf; must be finite and >= 0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_a_bad_cell_is_refused_with_its_row(changes: dict, message: str, tmp_path: Path):
    columns = {name: np.array(column, object) for name, column in rows(**changes).items()}
    with pytest.raises(ValueError) as refusal:
        read_iterations(write_csv(tmp_path / "steps.csv", columns))
    assert str(refusal.value).startswith(message)
    assert str(refusal.value).endswith(" (row 3 of steps.csv)")


def test_prefixes_of_several_prompts_cannot_be_told_apart():
    with pytest.raises(ValueError, match=r"n_prefill\[1\] = 2; must be <= 1 with prefix_tokens"):
        check_iterations(rows(prefill_attn=None, prefix_tokens=7, n_prefill=2))
    one = check_iterations(rows(prefill_attn=None, prefix_tokens=7, n_prefill=1))
    assert one.prefill_attention.tolist() == [5050.0, 5750.0, 5050.0]  # 100 * (7 + 50.5)


def test_decodes_without_context_are_refused():
    with pytest.raises(
        ValueError, match=r"decode_ctx\[0\] = 0; must be >= 1 where something decodes"
    ):
        check_iterations(rows(kv_tokens=None, decode_ctx=9))


def test_iterations_of_one_composition_share_a_number():
    columns = rows(decode_seqs=4)
    assert check_iterations(columns | {"t_ms": [1.0, 2.0, 3.0]}).batches.tolist() == [0, 1, 0]


def output(computed: dict[str, int], scheduled: dict[str, int], new: tuple[str, ...] = ()):
    """What a vLLM scheduler returns, as far as the recipe reads it."""
    old = [name for name in scheduled if name not in new]
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=n, num_computed_tokens=computed[n]) for n in new
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=old, num_computed_tokens=[computed[name] for name in old]
        ),
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
    )


def test_recipe_of_the_docs_writes_what_we_read(tmp_path: Path):
    """On a stand-in for vLLM's scheduler: a decode, a chunk after a prefix, a recomputed last token."""
    code = re.search(r"```python\n(.*?)```", RECIPE.read_text(), re.DOTALL)
    assert code is not None
    recipe: dict = {}
    exec(code[1], recipe)
    outputs = iter(
        [
            output({"a": 99, "b": 32, "c": 0}, {"a": 1, "b": 8, "c": 1}, new=("b", "c")),
            output({}, {}),
            output({"a": 100, "c": 6}, {"a": 1, "c": 1}),
        ]
    )
    requests = {
        "a": SimpleNamespace(num_tokens=100, num_output_tokens=5),
        "b": SimpleNamespace(num_tokens=40, num_output_tokens=0),
        "c": SimpleNamespace(num_tokens=7, num_output_tokens=0),
    }
    scheduler = SimpleNamespace(
        requests=requests,
        schedule=lambda: next(outputs),
        update_from_output=lambda output, model: model,
    )
    file = recipe["record"](scheduler, tmp_path / "steps.csv")
    for _ in range(3):
        assert scheduler.update_from_output(scheduler.schedule(), "tokens") == "tokens"
        requests["a"].num_tokens = 101
    file.close()
    read = read_iterations(tmp_path / "steps.csv")
    assert read.prefill_tokens.tolist() == [9, 1]
    assert read.decode_seqs.tolist() == [1, 1]
    assert read.kv_tokens.tolist() == [100, 101]
    assert read.prefill_attention.tolist() == [8 * (32 + 4.5) + 1, 6 + 1]
    assert (read.t_ms < 1000).all()
    with (tmp_path / "steps.csv").open() as lines:
        assert len(list(csv.reader(lines))) == 3
