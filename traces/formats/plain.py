"""Plain traces: CSV or JSON lines with arrival_s, prompt_tokens, output_tokens, our own names.

tier, category, tenant, model and session are read where they are there. For a trace made by hand or
exported from another tool; `Trace.save` writes parquet instead, which keeps everything.
"""

from servegym.traces.formats.format import Format

FORMAT = Format(
    name="plain trace",
    arrival="arrival_s",
    prompt="prompt_tokens",
    output="output_tokens",
    labels={name: name for name in ("category", "tenant", "model", "session")},
    tier="tier",
)
