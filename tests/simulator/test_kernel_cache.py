"""The compile cache: warm, it spares every later process the compiler; and no edit is ever served stale.

Each step is a process of its own. What is compiled is what numba's pipeline reports, cached or not.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from servegym.simulator.kernel import IS_JIT_DISABLED, SIMULATOR_HASH, cache_root

pytestmark = pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing compiles")
LAYERS = ("traces", "simulator", "baselines")

# Runs a body, then prints {"compiled": [module.function, ...], "answer": what the body left there}.
PROCESS = """
import json
from numba.core import event
with event.install_recorder("numba:run_pass") as recorder:
{body}
passes = [record.data for _, record in recorder.buffer]
compiled = sorted({{f"{{each['module']}}.{{each['qualname']}}" for each in passes}})
print(json.dumps({{"compiled": compiled, "answer": answer}}))
"""

# Two instances of 10 ms an iteration, 30 requests 7 ms apart; the answer is the sum of all finish times, ps.
SIMULATE = """
import sys
{imports}
import numpy as np
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace
trace = Trace(np.arange(30) * 7e-3, np.full(30, 40), np.full(30, 5))
config = ClusterConfig(instances=2, order="sjf", metrics_interval_s=0.05, kv_blocks=100)
simulation = Simulation(trace, config, find_policy("dispatch", "{dispatch}"))
simulation.run(0.05)
simulation.observe(0)
simulation.run()
records = simulation.state.requests
answer = [int(records["finish_ps"].sum()), records["instance"].tolist()]
"""

# The callee stands in another file than the function that is called, which is all that numba watches.
UNLOADED = """
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator import build, unloaded
import numpy as np
from servegym.simulator.state import ENGINE
engine = np.zeros(1, ENGINE)
config = ClusterConfig()
build._fill_engine(engine[0], config, config.fleet_profiles[0])
answer = int(unloaded.unloaded_ps(engine[0], 10, 3))
"""


def run_process(body: str, cache: Path, *path: Path) -> dict:
    """Run a body in a new process with that compile cache and those folders first on the path."""
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    environment = dict(os.environ, SERVEGYM_CACHE_DIR=str(cache))
    folders = [*map(str, path), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    done = subprocess.run(
        [sys.executable, "-c", PROCESS.format(body=indented)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cache,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def simulate(cache: Path, *path: Path, dispatch: str = "least-requests", imports: str = "") -> dict:
    """Run SIMULATE in a new process."""
    return run_process(SIMULATE.format(dispatch=dispatch, imports=imports), cache, *path)


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory) -> Path:
    """A cache folder of our own, warm: begun with a copy of the test run's."""
    cache = tmp_path_factory.mktemp("warm")
    if (cache_root() / SIMULATOR_HASH).is_dir():
        shutil.copytree(cache_root() / SIMULATOR_HASH, cache / SIMULATOR_HASH)
    simulate(cache)
    return cache


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of the packages that the engine needs, to be put on the path and edited."""
    root = tmp_path / "tree"
    for name in ("servegym", *(f"servegym.{layer}" for layer in LAYERS)):
        source = Path(str(import_module(name).__file__)).parent
        target = root / name.replace(".", "/")
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignore)
    return root


def edit(file: Path, before: str, after: str) -> None:
    """Replace text that must be there by text of the same length, and keep the file's times."""
    text, stat = file.read_text(), file.stat()
    assert text.count(before) == 1 and len(before) == len(after)
    file.write_text(text.replace(before, after))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_nothing_compiles_in_a_new_process_with_a_warm_cache(warm_cache):
    first, second = simulate(warm_cache), simulate(warm_cache)
    assert first == second
    assert second["compiled"] == []


def test_what_compiles_is_reported(tmp_path):
    # otherwise the test above could not fail
    body = "import numba\nnumba.njit(lambda x: x + 1)(1)\nanswer = 0"
    assert run_process(body, tmp_path)["compiled"] == ["__main__.<lambda>"]


MINE = """
from servegym.simulator import views
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import *

@dispatch_policy(source="a user's")
def mine(cluster, request, params, memory, rng):
    '''Return the instance with the least of everything that can be seen.'''
    chosen, least = HOLD, 1e300
    for i in range(n_instances(cluster)):
        load = n_waiting(cluster, i) + n_running(cluster, i) + held_tokens(cluster, i)
        load += used_blocks(cluster, i) - free_blocks(cluster, i) + waiting_blocks(cluster, i)
        load += kv_blocks(cluster, i) + predicted_tokens(request) + prompt_tokens(request)
        load += tier(request) + now_s(cluster) - arrival_s(request)
        if load < least and is_accepting(cluster, request, i):
            chosen, least = i, load
    return chosen
"""


def test_a_new_policy_compiles_only_itself_and_only_once(warm_cache, tmp_path):
    (tmp_path / "users_policy.py").write_text(MINE)
    runs = [
        simulate(warm_cache, tmp_path, dispatch="mine", imports="import users_policy")
        for _ in range(2)
    ]
    assert runs[0]["compiled"] == ["users_policy.mine"]
    assert runs[1]["compiled"] == []
    assert runs[0]["answer"] == runs[1]["answer"]


# A user's policy that returns an expression, and what that may depend on: (imports, expression, the policy's
# other file). `{h}` is that file's module, of its own for each kind.
POLICY = """
from servegym.simulator.policy import dispatch_policy
{imports}

@dispatch_policy(source="a user's", name="{h}")
def mine(cluster, request, params, memory, rng):
    return {expression}
"""
KERNEL = "from servegym.simulator.kernel import kernel\n\n@kernel\ndef answer():\n    return 0\n"
ASK = "from servegym.simulator.kernel import kernel\n\n@kernel\ndef ask():\n    return answer()\n"
DEPENDENCIES = {
    "a_kernel": ("from {h} import answer", "answer()", KERNEL),
    "a_kernel_of_a_kernel": ("import between\nfrom between import ask", "ask()", KERNEL),
    "a_jitted_function": (
        "from {h} import answer",
        "answer()",
        "import numba\n\n@numba.njit\ndef answer():\n    return 0\n",
    ),
    "a_constant": ("from {h} import ANSWER", "ANSWER", "ANSWER = 0\n"),
    "a_constant_of_a_module": ("import {h}", "{h}.ANSWER", "ANSWER = 0\n"),
    "a_tuple": ("from {h} import ANSWERS", "ANSWERS[1]", "ANSWERS = (5, 0)\n"),
}
ASK_ALL = """
import sys
import numpy as np
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace
answer = {{}}
for name in {names}:
    __import__("policy_on_" + name)
    simulation = Simulation(
        Trace([0.0], [1], [1]), ClusterConfig(instances=2), find_policy("dispatch", name)
    )
    simulation.run()
    answer[name] = int(simulation.state.requests["instance"][0])
"""


def test_what_a_policy_depends_on_is_never_served_stale(warm_cache, tmp_path):
    (tmp_path / "between.py").write_text("from a_kernel_of_a_kernel import answer\n" + ASK)
    for h, (imports, expression, other_file) in DEPENDENCIES.items():
        parts = {"imports": imports.format(h=h), "expression": expression.format(h=h), "h": h}
        (tmp_path / f"policy_on_{h}.py").write_text(POLICY.format(**parts))
        (tmp_path / f"{h}.py").write_text(other_file)
    body = ASK_ALL.format(names=list(DEPENDENCIES))
    assert run_process(body, warm_cache, tmp_path)["answer"] == dict.fromkeys(DEPENDENCIES, 0)
    for h in DEPENDENCIES:
        edit(tmp_path / f"{h}.py", "0", "1")
    assert run_process(body, warm_cache, tmp_path)["answer"] == dict.fromkeys(DEPENDENCIES, 1)


def check_edited_engine(cache: Path, tree: Path, run: Callable[[], dict]) -> None:
    """Assert that an edit of iteration_time.py shows at once, and that its undoing finds the old cache."""
    file = tree / "servegym" / "simulator" / "iteration_time.py"
    original = run()
    assert run() == {"compiled": [], "answer": original["answer"]}
    # the first decode's c_decode_step is added; now it is taken away. Same length, same times.
    edit(file, "inner_ms = engine.c0_ms +", "inner_ms = engine.c0_ms -")
    edited = run()
    assert edited["answer"] != original["answer"]
    assert edited["compiled"] != []
    edit(file, "inner_ms = engine.c0_ms -", "inner_ms = engine.c0_ms +")
    assert run() == {"compiled": [], "answer": original["answer"]}


def test_an_edited_kernel_is_never_served_stale(tree, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    check_edited_engine(cache, tree, lambda: run_process(UNLOADED, cache, tree))


@pytest.mark.slow
def test_an_edited_engine_is_never_served_stale(tree, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    check_edited_engine(cache, tree, lambda: simulate(cache, tree))


def test_the_copy_of_the_tree_is_what_runs(tree, tmp_path):
    # otherwise the two tests above could not fail
    body = "import servegym.simulator.iteration_time as it\nanswer = it.__file__"
    assert run_process(body, tmp_path, tree)["answer"].startswith(str(tree))


def test_a_policy_edited_between_import_and_first_use_does_not_poison_the_cache(tmp_path):
    """A notebook compiles the code it loaded, while the file on disk is newer already."""
    policy = tmp_path / "choice.py"
    body = (
        "from servegym import dispatch_policy\n\n\n"
        '@dispatch_policy(source="test")\n'
        "def choice(cluster, request, params, memory, rng):\n"
        "    return {index}\n"
    )
    play = (
        "from servegym import generate, simulate\n"
        "trace = generate('azure-conv', n=5, rate_per_s=5.0, seed=0)\n"
        "print(set(simulate(trace, system=choice.choice).requests['instance'].tolist()))\n"
    )
    edit = f"import pathlib\npathlib.Path('choice.py').write_text({body.format(index=3)!r})\n"
    policy.write_text(body.format(index=0))
    for program, expected in (
        ("import choice\n" + edit + play, "{0}"),
        ("import choice\n" + play, "{3}"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
