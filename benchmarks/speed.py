"""How fast the simulator is: requests per CPU-second, cost against fleet and trace size, memory.

Work: Azure conversation lengths, Poisson at 2.5 requests a second and instance, A100 x Llama-2-7B, sarathi with chunk
512 and 7,424 blocks. Timed: simulate(prebuilt trace, config) and summary(), process time, in one compiled process;
the median of `REPEATS`. Figures that are compared are measured in turns, so that a noisy moment hits both. What-if rows
use Astrolabe's own set-up: 12 A30 x Llama-2-7B, ShareGPT lengths, 48 sequences, 1,052 blocks; true lengths. PPO is
timed by the wall, MlpPolicy 64 x 64, 256 environments, 64 steps, batch 4,096, 4 epochs, one thread.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np

from servegym.baselines.saturation import scale_to_load
from servegym.baselines.simulate import simulate
from servegym.benchmarks.rows import Row
from servegym.benchmarks.targets import NS, judged
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Param, Policy, dispatch_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import max_num_seqs, n_instances, n_running, predicted_finish_s
from servegym.traces import Trace, generate

CLUSTER: dict[str, Any] = {
    "profile": "a100_sxm/Llama-2-7B/tp1",
    "engine": "sarathi",
    "max_num_batched_tokens": 512,
    "max_num_seqs": 128,
    "kv_blocks": 7424,
}
RATE_PER_INSTANCE = 2.5
N_REQUESTS, REPEATS = 100_000, 50
SMALL, LARGE = 10_000, 10_000_000
ASTROLABE: dict[str, Any] = {
    "instances": 12,
    "profile": "a30/Llama-2-7B/tp1",
    "engine": "sarathi",
    "max_num_batched_tokens": 512,
    "max_num_seqs": 48,
    "kv_blocks": 1052,
    "estimator": "oracle",
}
BELOW_KNEE, AT_KNEE, BEYOND_KNEE = 0.6, 0.95, 1.1  # multiples of the saturation rate
PREDICTIONS = 20  # of one request, for its time
FEW_REPEATS = 9
N_ENVS, STEPS, STEPPINGS = 256, 2001, 5  # a step an arrival of 2,000, and one to begin again
UPDATES = 12  # of PPO


class Work:
    """One timed piece of work; `seconds` collects a process time a call."""

    def __init__(self, system: str, instances: int, n: int = N_REQUESTS, **options: Any) -> None:
        self.system = system
        self.trace = _trace(instances, n, options.get("tiers", 1))
        self.config = ClusterConfig(instances=instances, **CLUSTER, **options)
        self.seconds: list[float] = []
        self._run()

    @classmethod
    def at_load(cls, load: float, system: str, n: int, params: str = "") -> "Work":
        """Return work on Astrolabe's set-up at a multiple of its saturation rate; params: of the system."""
        work = cls.__new__(cls)
        work.system = system + params
        work.config = ClusterConfig(**ASTROLABE)
        work.trace = scale_to_load(
            generate("sharegpt", n=n, rate_per_s=1.0, seed=0), work.config, load
        )
        work.seconds = []
        work._run()
        return work

    def _run(self) -> None:
        simulate(self.trace, self.config, self.system).summary()

    def time(self) -> None:
        """Run once more, timed."""
        begin = time.process_time()
        self._run()
        self.seconds.append(time.process_time() - begin)

    @property
    def per_s(self) -> float:
        """Requests per CPU-second, at the median time."""
        return len(self.trace) / median(self.seconds)

    @property
    def ns(self) -> float:
        """CPU-nanoseconds per request, at the median time."""
        return 1e9 / self.per_s


def _trace(instances: int, n: int, tiers: int) -> Trace:
    trace = generate("azure-conv", n=n, rate_per_s=RATE_PER_INSTANCE * instances, seed=0)
    _ = trace.workload_hash  # part of the prebuilt trace
    return trace.assign_tiers([1 / tiers] * tiers, seed=0) if tiers > 1 else trace


def time_in_turns(works: Sequence[Work], repeats: int = REPEATS) -> None:
    """Time all works, one after the other, that many times."""
    for _ in range(repeats):
        for work in works:
            work.time()


def run() -> list[Row]:
    """Return all rows of speed, size and memory."""
    return [
        *fleet_rows(),
        *what_if_rows(),
        *learned_rows(),
        *vector_rows(),
        *training_rows(),
        *length_rows(),
        *memory_rows(),
    ]


def fleet_rows() -> list[Row]:
    """Return requests per CPU-second by system and fleet."""
    round_robin = Work("round-robin", 8)
    true = Work("least-requests", 8)
    observed = Work("least-requests", 8, tiers=4, metrics_interval_s=0.1, routers=4)
    shortest = Work("least-requests", 16)
    small, large = Work("power-of-two", 16), Work("power-of-two", 4096)
    moving = Work("n-tier", 16, tiers=4)  # rebalances every 0.05 s
    time_in_turns([round_robin, true, observed, shortest, small, large, moving])
    return [
        judged("round-robin, 8 instances", round_robin.per_s),
        judged("least-requests, observed / true", observed.per_s / true.per_s),
        judged("least-requests, 16 instances", shortest.per_s),
        judged("power-of-two, 16 instances", small.per_s),
        judged("power-of-two, 4,096 instances", large.per_s),
        judged("power-of-two, cost at 4,096 / at 16", large.ns / small.ns),
        judged("n-tier with migration, 16 instances", moving.per_s),
    ]


@lru_cache(maxsize=1)
def predicting_policy() -> Policy:
    """Return the policy that only measures; registered when asked for, so that it is no system of the package."""

    @dispatch_policy(
        source="predicts many times where a batch is full, then takes it in turns",
        name="test-predict-often",
        params=(Param("predictions", 0, "a request", 0, 1e6, is_whole=True),),
        memory=2,  # next instance, requests predicted for
    )
    def predict_often(cluster, request, params, memory, rng):
        """Return the next instance, after so many predictions for it if as many run there as it can seat."""
        i = int(memory[0])
        memory[0] = i + 1 if i + 1 < n_instances(cluster) else 0
        if n_running(cluster, i) == max_num_seqs(cluster, i):
            memory[1] += 1
            for _ in range(int(params[0])):
                predicted_finish_s(cluster, request, i)
        return i

    return predict_often


def what_if_rows() -> list[Row]:
    """Return what it costs to play futures."""
    below, at = (Work.at_load(load, "astrolabe", N_REQUESTS) for load in (BELOW_KNEE, AT_KNEE))
    time_in_turns([below, at], FEW_REPEATS)
    return [
        judged("astrolabe, 12 instances, load .6", below.per_s),
        judged("astrolabe, 12 instances, near the knee", at.per_s),
        judged("what-if prediction, batch 48", prediction_us()),
    ]


def prediction_us() -> float:
    """Return the CPU-microseconds of one prediction where 48 requests run and some wait."""
    policy = predicting_policy()
    with_them, without = (
        Work.at_load(BEYOND_KNEE, policy.name, SMALL, f":predictions={k}") for k in (PREDICTIONS, 0)
    )
    time_in_turns([with_them, without], FEW_REPEATS)
    simulation = Simulation(with_them.trace, with_them.config, policy)
    simulation.run()
    n = PREDICTIONS * simulation.state.memory[1]
    return 1e6 * (median(with_them.seconds) - median(without.seconds)) / n


def learned_rows() -> list[Row]:
    """Return what a decision of a set network costs: a request with it, less one that goes to the next instance."""
    network, next_one = Work("learned:dispatch-ppo", 16), Work("round-robin", 16)
    time_in_turns([network, next_one], FEW_REPEATS)
    return [judged("learned network's decision, 16 instances", (network.ns - next_one.ns) / 1e3)]


def vector_rows() -> list[Row]:
    """Return the decisions a CPU-second of vector environments: random actions, every default, resets included."""
    stretches = {m: Stepping(m) for m in (4, 16)}
    for _ in range(STEPPINGS):
        for stepping in stretches.values():
            stepping.time()
    return [
        judged(f"vector Dispatch, {N_ENVS} environments of {m} instances", stepping.per_s)
        for m, stepping in stretches.items()
    ]


class Stepping:
    """A vector environment under random actions; `seconds` collects a process time a call."""

    def __init__(self, instances: int) -> None:
        import gymnasium

        self.env = gymnasium.make_vec(
            "servegym/Dispatch-v0",
            num_envs=N_ENVS,
            cluster={"instances": instances, **CLUSTER},
            rate_per_s=RATE_PER_INSTANCE * instances,
        )
        self.env.reset(seed=0)
        self.actions = np.random.default_rng(0).integers(0, instances, (STEPS, N_ENVS))
        self.seconds: list[float] = []

    def time(self) -> None:
        """Play a whole episode everywhere, timed: all end together, and the next ones are drawn."""
        begin = time.process_time()
        for row in self.actions:
            self.env.step(row)
        self.seconds.append(time.process_time() - begin)

    @property
    def per_s(self) -> float:
        """Decisions per CPU-second, at the median time."""
        return STEPS * N_ENVS / median(self.seconds)


def training_rows() -> list[Row]:
    """Return the steps a second of Stable-Baselines3's PPO, learning included; none without the extra `rl`."""
    try:
        import torch
        from stable_baselines3 import PPO
    except ModuleNotFoundError:
        print("PPO is left out: it needs the extra rl", file=sys.stderr)
        return []
    from servegym.envs.sb3 import SB3VecEnv

    torch.set_num_threads(1)
    env = SB3VecEnv("servegym/Dispatch-v0", N_ENVS, cluster={"instances": 4})
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=4096, n_epochs=4, device="cpu", seed=0)
    model.learn(2 * 64 * N_ENVS)
    begin = time.perf_counter()
    model.learn(UPDATES * 64 * N_ENVS)
    per_s = UPDATES * 64 * N_ENVS / (time.perf_counter() - begin)
    return [judged("SB3 PPO on vector Dispatch, 4 instances", per_s)]


def length_rows() -> list[Row]:
    """Return the cost of a request in a short and in a very long trace."""
    small, large = Work("round-robin", 8, SMALL), Work("round-robin", 8, LARGE)
    for _ in range(3):
        time_in_turns([small], REPEATS)
        large.time()
    return [
        Row("round-robin, 10 thousand requests", small.ns, NS),
        Row("round-robin, 10 million requests", large.ns, NS),
        judged("cost at 10 million / at 10 thousand", large.ns / small.ns),
    ]


def memory_rows() -> list[Row]:
    """Return the growth of peak memory a request, in a process of its own."""
    code = "from servegym.benchmarks.speed import print_memory; print_memory()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    growth = json.loads(done.stdout)
    return [
        judged("memory, simulate and summary", growth["summary"]),
        judged("memory, with the request table", growth["requests"]),
    ]


def print_memory() -> None:
    """Print, as JSON, the bytes a request by which peak memory grows after the trace is built."""
    work = Work("round-robin", 8, SMALL)
    work.trace = _trace(8, LARGE, 1)
    base = _reset_peak()
    result = simulate(work.trace, work.config, work.system)
    result.summary()
    with_summary = _peak_bytes()
    _ = result.requests
    growth = {"summary": with_summary - base, "requests": _peak_bytes() - base}
    print(json.dumps({name: size / LARGE for name, size in growth.items()}))


def _reset_peak() -> int:
    """Set the kernel's high-water mark to the present size (building the trace was larger); return it, bytes."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    """Return the peak resident size of this process, bytes (Linux: VmHWM of /proc/self/status)."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
