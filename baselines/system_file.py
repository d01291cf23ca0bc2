"""A system in a file: a YAML mapping of `system`, a name, and `settings`, as they stand behind its colon.

    system: n-tier
    settings: {peak: 0.31, form: 1, migration.threshold: 0.7}

`servegym tune` writes such files; wherever a system is named, the path of one, ending in .yaml, may stand. Other keys
(`cluster`, `provenance`) say where it comes from and are not read. YAML is read safely: it makes plain values only.
"""

from pathlib import Path
from typing import Any

import yaml

from servegym.baselines.system_fields import NOBODY
from servegym.traces.names import near_match

ENDINGS = (".yaml", ".yml")
LEARNED = "learned:"  # a checkpoint's file follows, then a comma
KEYS = ("format", "system", "settings", "cluster", "provenance")
FORMAT = 1


def is_system_file(name: str) -> bool:
    """Return whether a system's name is that of a file."""
    return name.endswith(ENDINGS)


def read_system_text(path: str | Path) -> str:
    """Return the system of a file as its name with settings; ValueError naming the file if it is none."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ValueError(f"system file {path}: {reason}") from None
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"system file {path} is no YAML: {' '.join(str(error).split())}") from None
    return text_of(document, path)


def text_of(document: Any, path: str | Path) -> str:
    """Return a document's system as text; ValueError says what is missing or not known."""
    if not isinstance(document, dict) or not isinstance(document.get("system"), str):
        raise ValueError(f"system file {path} names no system; write `system: NAME`")
    for key in document:
        if key not in KEYS:
            raise ValueError(f"system file {path}: unknown key {key!r}; {near_match(key, KEYS)}")
    if document.get("format", FORMAT) != FORMAT:
        raise ValueError(f"system file {path}: format = {document['format']!r}; must be {FORMAT}")
    settings = document.get("settings") or {}
    if not isinstance(settings, dict):
        raise ValueError(f"system file {path}: settings = {settings!r}; must be a mapping")
    texts = (f"{key}={NOBODY if value is None else value}" for key, value in settings.items())
    return with_settings(document["system"], ",".join(texts))


def head_of(system: str) -> str:
    """Return a system's text without its settings: a name, a file, or learned:FILE."""
    if system.startswith(LEARNED):
        return system.partition(",")[0]
    return system.partition(":")[0]


def with_settings(system: str, settings: str) -> str:
    """Return a system's text with more settings behind its own; one that it has too takes its place."""
    if not settings:
        return system
    head, given = head_of(system), {name_of(setting) for setting in settings.split(",")}
    own = filter(None, system[len(head) + 1 :].split(","))
    kept = [setting for setting in own if name_of(setting) not in given]
    return f"{head}{',' if ':' in head else ':'}{','.join([*kept, settings])}"


def name_of(setting: str) -> str:
    """Return what a setting, name=value, sets."""
    return setting.partition("=")[0].strip()


def write_system_file(path: str | Path, document: dict[str, Any], heading: str) -> None:
    """Write a document of this form, with a comment above it."""
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    Path(path).write_text(comment + yaml.safe_dump(document, sort_keys=False, width=110))
