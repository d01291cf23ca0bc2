"""Vidur traces: CSV with arrived_at (s), num_prefill_tokens, num_decode_tokens.

Times are kept as recorded. Vidur's lengths-only files have no arrived_at and are no traces.
Source: github.com/microsoft/vidur, data/processed_traces (Agrawal et al., MLSys 2024).
"""

from servegym.traces.formats.format import Format

FORMAT = Format(
    name="Vidur trace",
    arrival="arrived_at",
    prompt="num_prefill_tokens",
    output="num_decode_tokens",
)
