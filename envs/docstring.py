"""Docstrings of environments, composed: what a class says itself, then under each heading what all have in common.

So `help()` of each class is the whole page in Gymnasium's layout, and nothing is written twice. The tables of features
are made from baselines/features.py.
"""

import inspect
from collections.abc import Sequence

from servegym.baselines.features import (
    CLUSTER_FEATURES,
    INSTANCE_FEATURES,
    LIMIT,
    QUEUE_FEATURES,
    REQUEST_FEATURES,
    Feature,
)

HEADINGS = (
    "Description",
    "Action Space",
    "Observation Space",
    "Rewards",
    "Starting State",
    "Episode End",
    "Information",
    "Arguments",
    "Vectorized environment",
    "Version History",
    "References",
)
TABLES = {  # part of an observation: how it is laid out, and columns
    "cluster": ("C values", CLUSTER_FEATURES),
    "instances": ("M instances of F values, one after the other", INSTANCE_FEATURES),
    "queues": ("K queues of Q values, one after the other", QUEUE_FEATURES),
    "request": ("R values", REQUEST_FEATURES),
}


def compose(own: str, common: str) -> str:
    """Return the sections of a docstring in the order of HEADINGS, each followed by the common one of its name."""
    summary, own_sections = sections_of(own)
    _, common_sections = sections_of(common)
    common_sections["Observation Space"] += "\n\n" + feature_tables()
    parts = [summary]
    for heading in HEADINGS:
        texts = [each[heading] for each in (own_sections, common_sections) if heading in each]
        if texts:
            parts.append(f"## {heading}\n\n" + "\n\n".join(texts))
    return "\n\n".join(parts) + "\n"


def sections_of(docstring: str) -> tuple[str, dict[str, str]]:
    """Return what stands before the first heading, and the text under each."""
    summary, *rest = inspect.cleandoc(docstring).split("\n## ")
    sections: dict[str, str] = {}
    for part in rest:
        heading, _, text = part.partition("\n")
        assert heading in HEADINGS, heading
        sections[heading] = text.strip()
    return summary.strip(), sections


def feature_tables() -> str:
    """Return the columns of every part of an observation, as Markdown."""
    return "\n\n".join(
        f"`{part}`, {shape}:\n\n{feature_table(features)}"
        for part, (shape, features) in TABLES.items()
    )


def feature_table(features: Sequence[Feature]) -> str:
    """Return one part's columns as an aligned Markdown table."""
    rows = [
        (
            str(k),
            f"`{each.name}`",
            each.unit,
            f"{each.scale:,.10g}",
            f"{LIMIT * each.scale:,.10g}",
            each.meaning,
        )
        for k, each in enumerate(features)
    ]
    head = ("Num", "Name", "Quantity in", "Divided by", "Cut off at", "Meaning")
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
