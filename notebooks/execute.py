"""Run the notebooks from a clean kernel and write their outputs back: `make notebooks`, or with paths.

Kept: sources and outputs. Taken out: what differs from run to run and is no result (times of execution, the version of
Python, progress on stderr), so that a commit shows changed results only.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
CELL_LIMIT_S = 600


def execute(path: Path) -> NotebookNode:
    """Return the notebook with the outputs of a run in order; CellExecutionError if a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL["name"],
        timeout=CELL_LIMIT_S,
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    client.execute()
    return stripped(notebook)


def stripped(notebook: NotebookNode) -> NotebookNode:
    """Take out what is no result (mutates the notebook) and return it."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number:02d}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_progress(output)]
            for output in cell.outputs:
                output.pop("metadata", None)
                if output.output_type in ("display_data", "execute_result"):
                    output.metadata = nbformat.from_dict({})
    return notebook


def is_progress(output: NotebookNode) -> bool:
    """Return whether an output is text on stderr: progress, and the line that says kernels are compiled."""
    return output.output_type == "stream" and output.name == "stderr"


def main(arguments: Sequence[str]) -> None:
    """Execute the notebooks named, or all of the folder."""
    for path in [Path(name) for name in arguments] or sorted(FOLDER.glob("*.ipynb")):
        print(path.name, flush=True)
        nbformat.write(execute(path.resolve()), path)


if __name__ == "__main__":
    main(sys.argv[1:])
