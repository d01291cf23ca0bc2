"""Measured vLLM runs: CSV with arrival_s, input_tokens, output_tokens.

The measured columns (ttft_s, e2e_s, tpot_s) are not part of the trace and are not read.
Source: converted from the benchmark runs of github.com/casys-kaist/LLMServingSim.
"""

from servegym.traces.formats.format import Format

FORMAT = Format(
    name="vLLM reference run",
    arrival="arrival_s",
    prompt="input_tokens",
    output="output_tokens",
)
