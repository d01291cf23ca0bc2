"""Imports point one way, and kernels import numpy and numba only.

Layers: traces < simulator < baselines < envs < experiments < agents < tuning < servegym. The checks
read the source with ast; nothing is imported, so a module that fails to import is checked too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["traces", "simulator", "baselines", "envs", "experiments", "agents", "tuning", "servegym"]
FOLDERS = [*LAYERS, "benchmarks"]
KERNEL_LAYERS = {"simulator", "baselines", "envs"}
NOT_BESIDE_KERNELS = {"pydantic", "pandas"}


def layer_of(name: str) -> str | None:
    """Return the layer of an absolute module name, None when it is not ours."""
    parts = name.split(".")
    if parts[0] != "servegym":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else "servegym"


def imported_names(node: ast.AST, package: str) -> list[str]:
    """Return the absolute names that one import statement may bind, else an empty list."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    if module == "servegym":
        return [f"servegym.{alias.name}" for alias in node.names]
    return [module]


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int, bool]]:
    """Yield (absolute name, line, is at module level) of every import in a module."""
    stack: list[tuple[ast.AST, bool]] = [(tree, True)]
    while stack:
        node, at_top = stack.pop()
        for name in imported_names(node, package):
            yield name, getattr(node, "lineno", 0), at_top
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack.extend((child, at_top and not inside) for child in ast.iter_child_nodes(node))


def is_allowed(importer: str, imported: str, at_top: bool) -> bool:
    """May a module of one layer import from another?"""
    if importer == imported or importer == "benchmarks":
        return True
    if imported == "benchmarks":
        return importer == "servegym" and not at_top
    return LAYERS.index(imported) < LAYERS.index(importer)


def violations(layer: str, path: str, source: str) -> list[str]:
    """Return one message for every import of this module that breaks a rule."""
    package = ".".join(["servegym", *Path(path).parent.parts]).replace(
        "servegym.servegym", "servegym"
    )
    found = list(imports(ast.parse(source), package))
    messages = [
        f"{path}:{line}: {layer} imports {name}"
        for name, line, at_top in found
        if (target := layer_of(name)) and not is_allowed(layer, target, at_top)
    ]
    roots = {name.split(".")[0] for name, _, _ in found}
    if layer in KERNEL_LAYERS and "numba" in roots:
        beside = sorted(roots & NOT_BESIDE_KERNELS)
        messages += [f"{path}: imports {root} beside numba" for root in beside]
    return messages


def modules() -> list[tuple[str, str]]:
    """Return (layer, path relative to the root) of every module of the package."""
    return [
        (layer, str(path.relative_to(ROOT)))
        for layer in FOLDERS
        for path in sorted((ROOT / layer).rglob("*.py"))
    ]


def test_all_imports_point_down_the_layers():
    found = [
        v for layer, path in modules() for v in violations(layer, path, (ROOT / path).read_text())
    ]
    assert modules() and not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "is_fine"),
    [
        ("simulator/a.py", "from servegym.traces import Trace", True),
        ("traces/a.py", "from servegym.simulator import engine", False),
        ("traces/a.py", "def f():\n    import servegym.simulator", False),
        ("traces/a.py", "from ..simulator import engine", False),
        ("traces/a.py", "from .trace import Trace", True),
        ("traces/formats/a.py", "from ..trace import Trace", True),
        ("traces/formats/a.py", "from ...tuning import study", False),
        ("traces/a.py", "from servegym import simulate", False),
        ("traces/a.py", "if TYPE_CHECKING:\n    from servegym.envs import Env", False),
        ("servegym/a.py", "from servegym.tuning import study", True),
        ("servegym/a.py", "from servegym import benchmarks", False),
        ("servegym/a.py", "def f():\n    from servegym import benchmarks", True),
        ("experiments/a.py", "def f():\n    from servegym import benchmarks", False),
        ("benchmarks/a.py", "import servegym", True),
        ("simulator/a.py", "import numba\nimport pandas", False),
        ("simulator/a.py", "from numba import njit\nfrom pydantic import BaseModel", False),
        ("simulator/a.py", "import pandas", True),
        ("servegym/a.py", "import numba\nimport pandas", True),
    ],
)
def test_checker_tells_good_imports_from_bad(path: str, source: str, is_fine: bool):
    assert (violations(path.split("/")[0], path, source) == []) == is_fine
