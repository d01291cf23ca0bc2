"""The notebooks: each runs from nothing with nbmake, and what is committed is whole, small and of no one's machine.

SERVEGYM_FAST=1 makes them play little traffic; the committed outputs are of full runs (`make notebooks`).
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDED = {"nbmake": "test", "ipykernel": "test", "torch": "rl", "optuna": "tune"}
MOST_BYTES = 400_000
CELL_LIMIT_S = 900  # a first run compiles
OF_A_MACHINE = re.compile(
    r"/(home|root|tmp|work|Users|usr|opt|private|var)/|[A-Z]:\\|site-packages"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    """Return a notebook, valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(path: Path) -> list[NotebookNode]:
    """Return the cells with code."""
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def outputs(path: Path) -> list[NotebookNode]:
    """Return the outputs of all cells."""
    return [output for cell in code_cells(path) for output in cell.outputs]


def texts(output: NotebookNode) -> str:
    """Return all that an output says in words."""
    shown = output.get("data", {})
    return "\n".join(
        [output.get("text", ""), *(shown[kind] for kind in shown if kind.startswith("text/"))]
    )


def load_execute() -> ModuleType:
    """Return notebooks/execute.py, which is a script and in no package."""
    spec = spec_from_file_location("execute", ROOT / "notebooks" / "execute.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_notebooks_need_is_installed():
    absent = [f"{name} of {extra}" for name, extra in NEEDED.items() if not find_spec(name)]
    assert not absent, "pip install -c constraints.txt -e '.[test,rl,tune]'"


def test_the_four_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart_on_your_trace",
        "02_three_papers_side_by_side",
        "03_train_and_evaluate_a_dispatcher",
        "04_tune_headroom_decay_and_ema_rates",
    ]


@each_notebook
def test_a_notebook_runs_from_nothing(path):
    is_ours = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake"]
    command += ["--nbmake-kernel=python3", f"--nbmake-timeout={CELL_LIMIT_S}", str(path)]
    run = subprocess.run(
        command, cwd=ROOT, env=is_ours | {"SERVEGYM_FAST": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout


@each_notebook
def test_committed_cells_ran_in_order_from_a_clean_kernel(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_committed_outputs_are_results(path):
    kinds = [(output.output_type, output.get("name")) for output in outputs(path)]
    assert not [kind for kind in kinds if kind[0] == "error" or kind[1] == "stderr"]
    assert not [output for output in outputs(path) if "Warning" in texts(output)]
    n_pictures = sum("image/png" in output.get("data", {}) for output in outputs(path))
    assert n_pictures >= 3


@each_notebook
def test_a_committed_notebook_names_no_folder_of_a_machine(path):
    found = [line for output in outputs(path) for line in OF_A_MACHINE.findall(texts(output))]
    sources = [line for cell in read(path).cells for line in OF_A_MACHINE.findall(cell.source)]
    assert not found + sources


@each_notebook
def test_a_committed_notebook_is_small_and_holds_nothing_else(path):
    assert path.stat().st_size < MOST_BYTES
    notebook = read(path)
    assert notebook.metadata == {"kernelspec": load_execute().KERNEL}
    assert not any(cell.metadata for cell in notebook.cells)


def test_executing_keeps_results_and_takes_out_progress(tmp_path):
    path = tmp_path / "small.ipynb"
    cells = [
        nbformat.v4.new_code_cell("import sys; print(6 * 7); print('busy', file=sys.stderr)"),
        nbformat.v4.new_code_cell("'a ' + 'value'"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    load_execute().main([str(path)])
    first, second = code_cells(path)
    assert [(output.name, output.text) for output in first.outputs] == [("stdout", "42\n")]
    assert second.outputs[0].data["text/plain"] == "'a value'"
    assert (first.execution_count, second.execution_count) == (1, 2)
    assert not first.metadata and not second.metadata
    assert list(read(path).metadata) == ["kernelspec"]
