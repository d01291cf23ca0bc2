"""The figures to reach, each once: name, bound, unit.

Speed is for one core of a small cloud machine, in requests per CPU-second unless the unit says otherwise. Bounds of
fidelity are relative errors in per cent.
"""

from dataclasses import dataclass

from servegym.benchmarks.rows import Row


@dataclass(frozen=True)
class Target:
    """A bound on one figure: at least (is_floor) or at most `bound`."""

    bound: float
    unit: str
    is_floor: bool = False

    def row(self, name: str, value: float) -> Row:
        """Return the measured figure beside its bound."""
        is_met = value >= self.bound if self.is_floor else value <= self.bound
        sign = ">=" if self.is_floor else "<="
        return Row(name, value, self.unit, f"{sign} {self.bound:,g}", bool(is_met))


LENGTH_LEVELS = (0.5, 0.9, 0.99)
IOD_WINDOWS_S = {
    "azure-conv": (1.0, 10.0, 60.0),
    "azure-code": (1.0, 10.0, 60.0),
    "mooncake-conversation": (10.0, 60.0),
}
FITTED_LENGTHS = (*IOD_WINDOWS_S, "burstgpt", "sharegpt", "arxiv-summarization", "deepseek-r1")

PER_S, NS, BYTES, SECONDS, PERCENT = "requests/CPU-s", "ns/request", "B/request", "s", "%"
DECISIONS, FPS = "decisions/CPU-s", "steps/s"

TARGETS = {
    "round-robin, 8 instances": Target(3_000_000, PER_S, is_floor=True),
    "least-requests, observed / true": Target(0.5, "of its speed", is_floor=True),
    "least-requests, 16 instances": Target(700_000, PER_S, is_floor=True),
    "power-of-two, 16 instances": Target(2_000_000, PER_S, is_floor=True),
    "power-of-two, 4,096 instances": Target(2_000_000, PER_S, is_floor=True),
    "power-of-two, cost at 4,096 / at 16": Target(1.6, "times"),
    "n-tier with migration, 16 instances": Target(400_000, PER_S, is_floor=True),
    "astrolabe, 12 instances, load .6": Target(100_000, PER_S, is_floor=True),
    "astrolabe, 12 instances, near the knee": Target(30_000, PER_S, is_floor=True),
    "what-if prediction, batch 48": Target(15, "us"),
    "learned network's decision, 16 instances": Target(5, "us"),
    "vector Dispatch, 256 environments of 4 instances": Target(800_000, DECISIONS, is_floor=True),
    "vector Dispatch, 256 environments of 16 instances": Target(300_000, DECISIONS, is_floor=True),
    "SB3 PPO on vector Dispatch, 4 instances": Target(60_000, FPS, is_floor=True),
    "cost at 10 million / at 10 thousand": Target(1.2, "times"),
    "memory, simulate and summary": Target(200, BYTES),
    "memory, with the request table": Target(400, BYTES),
    "engine compiles in a new process": Target(0, "functions"),
    "compiles of a new user policy": Target(1, "functions"),
    "compiles of the same policy again": Target(0, "functions"),
    "compare of 4 systems, empty cache": Target(40, SECONDS),
    "compare of 4 systems, warm": Target(4, SECONDS),
    "vLLM RTX 4090: E2E MAPE": Target(2.5, PERCENT),
    "vLLM RTX 4090: mean TPOT": Target(1.0, PERCENT),
    "vLLM RTX 4090: mean TTFT": Target(3.0, PERCENT),
    "vLLM RTX PRO 6000: E2E MAPE, requests 100-299": Target(1.5, PERCENT),
    "Vidur r1_vllm_q2: mean E2E": Target(5.0, PERCENT),
    "Vidur r1_vllm_q2: P99 E2E": Target(5.0, PERCENT),
    "Vidur r1_sarathi512_q3p5: mean E2E": Target(5.0, PERCENT),
    "Vidur r1_sarathi512_q3p5: P99 E2E": Target(5.0, PERCENT),
    "Vidur r8_sarathi512_round_robin_q20: mean E2E": Target(5.0, PERCENT),
    "Vidur r8_sarathi512_round_robin_q20: P99 E2E": Target(5.0, PERCENT),
    # Fitted workloads against the files they were fitted on.
    **{
        f"{name}: {side} P50, P90, P99": Target(5.0, PERCENT)
        for name in FITTED_LENGTHS
        for side in ("prompt", "output")
    },
    **{
        f"{name}: IoD at {window_s:g} s": Target(25.0, PERCENT)
        for name, windows_s in IOD_WINDOWS_S.items()
        for window_s in windows_s
    },
}


def judged(name: str, value: float) -> Row:
    """Return the row of a figure that has a target; KeyError for one that has none."""
    return TARGETS[name].row(name, value)
