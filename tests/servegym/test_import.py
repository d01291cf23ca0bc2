"""The front door: cheap to import, every name resolves, and a user's own script needs nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import servegym

# gymnasium, where the environments are registered, brings numpy: nearly all of the 0.15 s that an import takes.
HEAVY = ("numba", "pandas", "torch", "matplotlib", "pyarrow", "pydantic", "scipy")
IMPORT = """
import sys, time
start = time.process_time()  # of this process: the machine may be busy
import gymnasium
between = time.process_time()
import servegym
own_share = (time.process_time() - between) / (between - start)
import json
print(json.dumps([own_share, [name for name in %r if name in sys.modules]]))
"""
OWN_SCRIPT = '''
import servegym
from servegym.simulator.views import is_accepting, n_instances


@servegym.dispatch_policy(source="mine", params=(servegym.Param("skip", 0, "instances", 0, 8),))
def last_first(cluster, request, params, memory, rng):
    """Return the last accepting instance, less those skipped."""
    chosen, skipped = -1, 0
    for i in range(n_instances(cluster) - 1, -1, -1):
        if is_accepting(cluster, request, i):
            if chosen < 0 or skipped < params[0]:
                chosen, skipped = i, skipped + (chosen >= 0)
    return chosen


trace = servegym.Trace([0.0, 0.5, 1.0], [100, 100, 100], [5, 5, 5])
mine = servegym.simulate(trace, system=last_first, instances=4)
by_name = servegym.simulate(trace, system="last-first:skip=1", instances=4)
print(mine.system, mine.requests["instance"].tolist(), mine.summary()["finished"])
print(by_name.system, by_name.requests["instance"].tolist())
'''


def python(*arguments: str, cwd: Path | None = None) -> str:
    """Run Python in a process of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick_and_loads_nothing_heavy():
    runs = [json.loads(python("-c", IMPORT % (HEAVY,))) for _ in range(3)]
    assert [loaded for _, loaded in runs] == [[]] * 3
    assert min(own_share for own_share, _ in runs) < 0.2  # of what gymnasium alone takes


@pytest.mark.parametrize("name", servegym.__all__)
def test_every_public_name_resolves(name: str):
    assert getattr(servegym, name) is not None
    assert name in dir(servegym)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        servegym.simulat  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_version_is_that_of_the_distribution():
    assert servegym.__version__.count(".") >= 2


def test_policy_in_a_users_own_script_runs(tmp_path: Path):
    script = tmp_path / "mine.py"
    script.write_text(OWN_SCRIPT)
    first, second = python(str(script), cwd=tmp_path).splitlines()
    assert first == "last-first [3, 3, 3] 3"
    assert second == "last-first:skip=1 [2, 2, 2]"
