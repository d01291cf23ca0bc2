"""How close the fitted workloads come to the files they were fitted on.

Lengths: the largest relative error of P50, P90 and P99 over 400,000 drawn requests. Arrivals: the
relative error of the mean index of dispersion of 20 fitted traces as long as the file. The files lie
in the data folder (traces/, each with SOURCE.md); DeepSeek-R1's lengths are ServeGen's histograms.
"""

from pathlib import Path

import numpy as np

from servegym.benchmarks.fidelity import data_folder
from servegym.benchmarks.rows import Row
from servegym.benchmarks.targets import IOD_WINDOWS_S, LENGTH_LEVELS, judged
from servegym.traces import Trace, generate
from servegym.traces.dispersion import index_of_dispersion
from servegym.traces.fit import read_requests
from servegym.traces.servegen import (
    INPUT,
    OUTPUT,
    histogram_quantiles,
    merged_histogram,
    read_clients,
)

FILES = {
    "azure-conv": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "azure-code": "azure_llm_2023/AzureLLMInferenceTrace_code.csv",
    "mooncake-conversation": "mooncake_fast25/conversation_trace.jsonl.gz",
    "burstgpt": "burstgpt_sample/BurstGPT_1.first400.csv",
    "sharegpt": "sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz",
    "arxiv-summarization": (
        "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz"
    ),
}
CLIENTS = {"deepseek-r1": "servegen/reason_deepseek-r1.tar.gz"}
TICKS_S = {"mooncake-conversation": 3.0}
N_DRAWN, N_TRACES, SEED = 400_000, 20, 0

Pair = tuple[np.ndarray, np.ndarray]


def run() -> list[Row]:
    """Return all rows; ValueError without the data folder."""
    folder = data_folder() / "traces"
    return [*length_rows(folder), *arrival_rows(folder)]


def length_rows(folder: Path) -> list[Row]:
    """Return two rows for each workload: prompt and output."""
    rows = []
    for name in [*FILES, *CLIENTS]:
        trace = generate(name, N_DRAWN, 1.0, SEED)
        pairs = zip((trace.prompt_tokens, trace.output_tokens), recorded(folder, name), strict=True)
        for side, (drawn, quantiles) in zip(("prompt", "output"), pairs, strict=True):
            errors = np.abs(np.quantile(drawn, LENGTH_LEVELS) / quantiles - 1.0)
            rows.append(judged(f"{name}: {side} P50, P90, P99", float(100 * errors.max())))
    return rows


def recorded(folder: Path, name: str) -> Pair:
    """Return P50, P90 and P99 of the recorded prompts and outputs, tokens."""
    if name in CLIENTS:
        clients = read_clients(folder / CLIENTS[name])
        merged = [merged_histogram(clients, field) for field in (INPUT, OUTPUT)]
        prompts, outputs = (np.array(histogram_quantiles(h, LENGTH_LEVELS)) for h in merged)
        return prompts, outputs
    requests = read_requests(folder / FILES[name])
    is_trace = isinstance(requests, Trace)
    pair = (requests.prompt_tokens, requests.output_tokens) if is_trace else requests
    return np.quantile(pair[0], LENGTH_LEVELS), np.quantile(pair[1], LENGTH_LEVELS)


def arrival_rows(folder: Path) -> list[Row]:
    """Return a row for each workload with fitted arrivals and each time scale."""
    rows = []
    for name, windows_s in IOD_WINDOWS_S.items():
        file = recorded_arrivals(folder, name)
        drawn = fitted_arrivals(name, len(file))
        for window_s in windows_s:
            real = dispersion(file, window_s)
            mean = float(np.mean([dispersion(times, window_s) for times in drawn]))
            rows.append(judged(f"{name}: IoD at {window_s:g} s", 100 * abs(mean / real - 1.0)))
    return rows


def recorded_arrivals(folder: Path, name: str) -> np.ndarray:
    """Return the recorded times, s; those on a coarse clock spread over its ticks."""
    trace = read_requests(folder / FILES[name])
    assert isinstance(trace, Trace)
    return trace.spread_batches(0, TICKS_S[name]).arrival_s if name in TICKS_S else trace.arrival_s


def fitted_arrivals(name: str, n: int) -> list[np.ndarray]:
    """Return the times of 20 traces of n requests by the workload's own process, s."""
    seeds = range(SEED, SEED + N_TRACES)
    return [generate(name, n, None, seed, arrivals="fitted").arrival_s for seed in seeds]


def dispersion(arrival_s: np.ndarray, window_s: float) -> float:
    """Return the index of dispersion of a trace that is long enough to have one."""
    found = index_of_dispersion(arrival_s, window_s)
    assert found is not None
    return found
