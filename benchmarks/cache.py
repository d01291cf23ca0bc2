"""What a new process compiles: nothing of the engine, and of a new user policy only itself.

Each figure comes from a process of its own, on a compile cache made for the purpose and thrown away.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servegym.benchmarks.rows import Row
from servegym.benchmarks.targets import judged

SYSTEMS = "round-robin,random,least-requests,power-of-two"
COMPARE = [
    *(
        "-m",
        "servegym",
        "compare",
        "--workload",
        "azure-conv",
        "--systems",
        SYSTEMS,
        "--instances",
        "8",
    ),
    *("--load", "0.95", "--seeds", "10", "--json"),
]

ENGINE_SCRIPT = """
from servegym.baselines.simulate import simulate
from servegym.benchmarks.cache import print_counts
from servegym.traces import generate
simulate(generate("azure-conv", n=100, rate_per_s=10.0, seed=0), system="least-requests").summary()
print_counts()
"""

POLICY_SCRIPT = """
from servegym.baselines.simulate import simulate
from servegym.benchmarks.cache import print_counts
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import n_instances, prompt_tokens
from servegym.traces import generate

@dispatch_policy(source="benchmarks/cache.py")
def by_prompt(cluster, request, params, memory, rng):
    return prompt_tokens(request) % n_instances(cluster)

simulate(generate("azure-conv", n=100, rate_per_s=10.0, seed=0), system=by_prompt).summary()
print_counts()
"""


def print_counts() -> None:
    """Print, as JSON, how many functions this process found in the cache and how many it compiled."""
    import gc

    from numba.core.ccallback import CFunc
    from numba.core.dispatcher import Dispatcher

    hits = compiled = 0
    for found in gc.get_objects():
        if isinstance(found, Dispatcher):
            hits += sum(found.stats.cache_hits.values())
            compiled += sum(found.stats.cache_misses.values())
        elif isinstance(found, CFunc):
            hits += found.cache_hits
            compiled += 1 - min(1, found.cache_hits)
    print(json.dumps({"hits": hits, "compiled": compiled}))


def run() -> list[Row]:
    """Return hits and misses of new processes, and the seconds of a comparison on an empty and a warm cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SERVEGYM_CACHE_DIR": folder}
        script = Path(folder) / "user_policy.py"
        empty_s = _seconds(COMPARE, environment)
        warm_s = _seconds(COMPARE, environment)
        engine = _counts(["-c", ENGINE_SCRIPT], environment)
        script.write_text(POLICY_SCRIPT)
        new_policy = _counts([str(script)], environment)
        known_policy = _counts([str(script)], environment)
    return [
        judged("compare of 4 systems, empty cache", empty_s),
        judged("compare of 4 systems, warm", warm_s),
        Row("engine functions found in the cache", engine["hits"], "functions"),
        judged("engine compiles in a new process", engine["compiled"]),
        judged("compiles of a new user policy", new_policy["compiled"]),
        judged("compiles of the same policy again", known_policy["compiled"]),
    ]


def _seconds(arguments: list[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    _process(arguments, environment)
    return time.perf_counter() - begin


def _counts(arguments: list[str], environment: dict[str, str]) -> dict[str, int]:
    return json.loads(_process(arguments, environment).splitlines()[-1])


def _process(arguments: list[str], environment: dict[str, str]) -> str:
    """Run Python with these arguments; return what it printed. RuntimeError with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments[:4])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
