"""Every file of the data folder loads, with what was measured on it, or is refused for its reason."""

from pathlib import Path

import numpy as np
import pytest

from servegym.traces import Trace, load, load_lengths

pytestmark = pytest.mark.data

# file: requests, rows dropped, mean req/s (None where not measured), mean prompt, mean output
LOADED = {
    "traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv": (8_819, 0, 2.566, 2047.8, 27.9),
    "traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv": (19_366, 0, 5.53, 1154.7, 211.1),
    "traces/burstgpt_sample/BurstGPT_1.first400.csv": (383, 17, 0.01025, 543.6, 288.8),
    "traces/mooncake_fast25/conversation_trace.jsonl.gz": (12_031, 0, 3.401, 12035.1, 342.6),
    "traces/mooncake_fast25/synthetic_trace.jsonl.gz": (3_993, 0, 3.906, 15325.5, 149.1),
    "traces/splitwise_sim/test_trace.csv": (3, 0, None, None, None),
    "traces/vidur_processed/splitwise_code.csv.gz": (8_819, 0, 2.566, 2047.8, 27.9),
    "traces/vidur_processed/splitwise_conv.csv.gz": (19_366, 0, 5.53, 1154.7, 211.1),
    "reference/vidur/trace_n1000_q2.csv": (1_000, 0, None, None, None),
    "reference/vidur/trace_n1000_q3p5.csv": (1_000, 0, None, None, None),
    "reference/vidur/trace_n4000_q20.csv": (4_000, 0, None, None, None),
    "reference/vllm/RTX4090_Llama-3.1-8B.csv": (300, 0, None, None, None),
    "reference/vllm/RTXPRO6000_Llama-3.1-8B.csv": (300, 0, None, None, None),
}

SERVEGEN = "is ServeGen client data: distributions, not a request log; fit a workload"
NO_TIMES = r"no arrival column arrived_at \(Vidur trace\); fit a workload"
NO_TIMES_OF_RUN = r"no arrival column arrival_s \(vLLM reference run\)"
REFUSED = {
    "traces/servegen/language_m-large.day6.tar.gz": SERVEGEN,
    "traces/servegen/language_m-mid.day6.tar.gz": SERVEGEN,
    "traces/servegen/language_m-small.day6.tar.gz": SERVEGEN,
    "traces/servegen/language_total_rate_14d.derived.csv": "is a table of ServeGen rates",
    "traces/servegen/multimodal_mm-image.tar.gz": SERVEGEN,
    "traces/servegen/reason_deepseek-r1.tar.gz": SERVEGEN,
    "traces/sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz": NO_TIMES,
    "traces/vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz": NO_TIMES,
    "reference/vidur/r1_sarathi512_q3p5.csv": NO_TIMES_OF_RUN,
    "reference/vidur/r1_vllm_q2.csv": NO_TIMES_OF_RUN,
    "reference/vidur/r8_sarathi512_round_robin_q20.csv": NO_TIMES_OF_RUN,
}
DOCUMENTS = {".md", ".txt", ""}  # texts about the data, and its checksums

# STATS.md: CV, IoD at 1, 10 and 60 s, peak in 1 s; Pearson, Spearman, Pearson of logs
ARRIVALS = {
    "azure_llm_2023/AzureLLMInferenceTrace_code.csv": (13.15, 13.19, 71.85, 166.89, 67),
    "azure_llm_2023/AzureLLMInferenceTrace_conv.csv": (1.09, 1.39, 3.87, 16.41, 16),
    "burstgpt_sample/BurstGPT_1.first400.csv": (4.47, 1.01, 1.22, 2.71, 2),
    "mooncake_fast25/synthetic_trace.jsonl.gz": (1.01, 1.09, 1.19, 1.27, 13),
}
CORRELATIONS = {
    "azure_llm_2023/AzureLLMInferenceTrace_code.csv": (0.001, -0.021, -0.004),
    "azure_llm_2023/AzureLLMInferenceTrace_conv.csv": (-0.112, 0.073, 0.088),
    "burstgpt_sample/BurstGPT_1.first400.csv": (0.214, 0.276, 0.276),
    "mooncake_fast25/conversation_trace.jsonl.gz": (0.072, 0.072, 0.054),
    "mooncake_fast25/synthetic_trace.jsonl.gz": (-0.374, -0.517, -0.494),
}


def mooncake(data_dir: Path, kind: str = "conversation") -> Trace:
    """A Mooncake trace."""
    return load(data_dir / f"traces/mooncake_fast25/{kind}_trace.jsonl.gz")


@pytest.mark.parametrize("file", [*LOADED, *REFUSED])
def test_case_14_every_file_loads_or_is_refused_for_its_reason(data_dir: Path, file: str):
    """A file that half loads, or is refused for the wrong reason, costs a day each time."""
    if file in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[file]):
            load(data_dir / file)
        return
    n, n_dropped, rate, prompt, output = LOADED[file]
    trace = load(data_dir / file)
    assert trace.report is not None and trace.mean_rate_per_s is not None
    assert (trace.report.rows_read, trace.report.kept) == (n + n_dropped, n)
    assert sum(trace.report.dropped.values()) == n_dropped
    if rate is not None:
        assert trace.mean_rate_per_s == pytest.approx(rate, rel=1e-3)
        assert trace.prompt_tokens.mean() == pytest.approx(prompt, abs=0.05)
        assert trace.output_tokens.mean() == pytest.approx(output, abs=0.05)


def test_no_file_of_the_data_folder_is_forgotten(data_dir: Path):
    found = {
        str(path.relative_to(data_dir))
        for folder in ("traces", "reference")
        for path in (data_dir / folder).rglob("*")
        if path.is_file() and path.suffix not in DOCUMENTS and path.name != "meta.json"
    }
    assert found == {*LOADED, *REFUSED}


@pytest.mark.parametrize("file", ARRIVALS)
def test_arrival_figures_are_those_that_were_measured(data_dir: Path, file: str):
    cv, *dispersion, peak = ARRIVALS[file]
    figures = load(data_dir / "traces" / file).describe()
    assert figures["interarrival_cv"] == pytest.approx(cv, abs=0.01)
    found = [row["index_of_dispersion"] for row in figures["windows"]]
    assert found == pytest.approx(dispersion, abs=0.006)
    assert figures["windows"][0]["peak_per_s"] == peak


@pytest.mark.parametrize("file", CORRELATIONS)
def test_correlations_are_those_that_were_measured(data_dir: Path, file: str):
    figures = load(data_dir / "traces" / file).describe()
    assert list(figures["correlation"].values()) == pytest.approx(CORRELATIONS[file], abs=0.0006)


@pytest.mark.parametrize(("kind", "share"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_prefix_reuse_is_what_was_measured(data_dir: Path, kind: str, share: float):
    blocks = mooncake(data_dir, kind).prefix_blocks
    assert blocks is not None
    assert blocks.reuse_share() == pytest.approx(share, abs=0.0006)


@pytest.mark.parametrize("kind", ["conversation", "synthetic"])
def test_prefix_blocks_cover_every_prompt(data_dir: Path, kind: str):
    trace = mooncake(data_dir, kind)
    assert trace.prefix_blocks is not None
    np.testing.assert_array_equal(
        np.diff(trace.prefix_blocks.offsets), -(-trace.prompt_tokens // 512)
    )


def test_mooncake_conversation_is_on_its_grid_until_it_is_spread(data_dir: Path):
    trace = mooncake(data_dir)
    assert len(np.unique(trace.arrival_s)) == 1_180
    assert trace.resolution_s == pytest.approx(3.0, abs=0.001)
    spread = trace.spread_batches(seed=0)
    # Without the grid its arrivals are close to Poisson within seconds.
    assert trace.describe()["windows"][0]["index_of_dispersion"] == pytest.approx(7.90, abs=0.01)
    assert spread.describe()["windows"][0]["index_of_dispersion"] == pytest.approx(1.0, abs=0.2)
    assert mooncake(data_dir, "synthetic").resolution_s is None


@pytest.mark.parametrize("kind", ["code", "conv"])
def test_azure_and_its_vidur_copy_are_the_same_trace(data_dir: Path, kind: str):
    azure = load(data_dir / f"traces/azure_llm_2023/AzureLLMInferenceTrace_{kind}.csv")
    vidur = load(data_dir / f"traces/vidur_processed/splitwise_{kind}.csv.gz")
    np.testing.assert_array_equal(azure.prompt_tokens, vidur.prompt_tokens)
    np.testing.assert_array_equal(azure.output_tokens, vidur.output_tokens)
    np.testing.assert_allclose(azure.arrival_s, vidur.arrival_s, atol=1e-6)


def test_azure_arrivals_are_exact_to_100_ns(data_dir: Path):
    trace = load(data_dir / "traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
    # First rows: 18:15:46.6805900 and 18:15:50.9951690, 4.3145790 s apart.
    assert trace.arrival_s[1] == 4.314579
    picoseconds = np.rint(trace.arrival_s * 1e12).astype(np.int64)
    assert not np.any(picoseconds % 100_000)


def test_burstgpt_labels_are_those_of_the_file(data_dir: Path):
    labels = load(data_dir / "traces/burstgpt_sample/BurstGPT_1.first400.csv").describe()["labels"]
    assert set(labels["model"]["largest"]) == {"ChatGPT", "GPT-4"}
    assert set(labels["category"]["largest"]) == {"Conversation log", "API log"}


@pytest.mark.parametrize(
    ("file", "n"),
    [
        ("sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz", 10_000),
        (
            "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
            28_257,
        ),
    ],
)
def test_lengths_alone_load_with_drawn_arrivals(data_dir: Path, file: str, n: int):
    trace = load_lengths(data_dir / "traces" / file, rate_per_s=8.0, seed=1)
    assert len(trace) == n
    # The standard error of the mean rate is 8 / sqrt(n) <= .08; five of them.
    assert trace.mean_rate_per_s == pytest.approx(8.0, abs=0.4)
