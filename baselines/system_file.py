"""A system in a file: a YAML mapping of `system`, a name, and `settings`, as they stand behind its colon.

    system: n-tier
    settings: {peak: 0.31, form: 1, migration.threshold: 0.7}
    cluster: {tiers: 4}

`servegym tune` writes such files; wherever a system is named, the path of one, ending in .yaml, may stand. `cluster` is
the number of tiers that it was found with: the cluster's, the same for all systems of a comparison, so that another is
an error (check_tiers). `provenance` says where it comes from and is not read. YAML is read safely: it makes plain
values only.
"""

from pathlib import Path
from typing import Any

import yaml

from servegym.baselines.learned.architectures import load_checkpoint
from servegym.baselines.system_fields import NOBODY
from servegym.traces.names import near_match

ENDINGS = (".yaml", ".yml")
LEARNED = "learned:"  # a checkpoint's file follows, then a comma
KEYS = ("format", "system", "settings", "cluster", "provenance")
TIERS = "tiers"  # all that `cluster` may hold
FORMAT = 1


def is_system_file(name: str) -> bool:
    """Return whether a system's name is that of a file."""
    return name.endswith(ENDINGS) and not name.startswith(LEARNED)


def read_system_text(path: str | Path) -> str:
    """Return the system of a file as its name with settings; ValueError naming the file if it is none."""
    document = read_document(path)
    settings = document.get("settings") or {}
    texts = (f"{key}={NOBODY if value is None else value}" for key, value in settings.items())
    return with_settings(document["system"], ",".join(texts))


def read_document(path: str | Path) -> dict[str, Any]:
    """Return what stands in a system file, checked; ValueError naming the file if it is none."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ValueError(f"system file {path}: {reason}") from None
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"system file {path} is no YAML: {' '.join(str(error).split())}") from None
    check_document(document, path)
    return document


def check_document(document: Any, path: str | Path) -> None:
    """ValueError that says what is missing in a system file, or not known."""
    if not isinstance(document, dict) or not isinstance(document.get("system"), str):
        raise ValueError(f"system file {path} names no system; write `system: NAME`")
    for key in document:
        if key not in KEYS:
            raise ValueError(f"system file {path}: unknown key {key!r}; {near_match(key, KEYS)}")
    if document.get("format", FORMAT) != FORMAT:
        raise ValueError(f"system file {path}: format = {document['format']!r}; must be {FORMAT}")
    for name in ("settings", "cluster"):
        value = document.get(name) or {}
        if not isinstance(value, dict):
            raise ValueError(f"system file {path}: {name} = {value!r}; must be a mapping")
    for key, value in (document.get("cluster") or {}).items():
        if key != TIERS:
            raise ValueError(f"system file {path}: unknown key cluster.{key}; must be {TIERS}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"system file {path}: cluster.{key} = {value!r}; must be whole, >= 1")


def tiers_of(system: str) -> int | None:
    """Return the number of tiers that a system's file, or one that it names, was found with; None if none says."""
    head = head_of(system)
    if not is_system_file(head):
        return None
    document = read_document(head)
    own = (document.get("cluster") or {}).get(TIERS)
    return tiers_of(document["system"]) if own is None else own


def check_tiers(system: str, tiers: int) -> None:
    """ValueError if a system is a file's that was found with another number of tiers than the cluster has.

    A file that is gone since its system was read says nothing.
    """
    head = head_of(system)
    if not is_system_file(head) or not Path(head).exists():
        return
    wanted = tiers_of(system)
    if wanted not in (None, tiers):
        raise ValueError(
            f"tiers = {tiers}; the system of {head} was found with {wanted} (its cluster.tiers): "
            f"give --tiers {wanted} and a --tier-mix, as the command on top of the file does"
        )


def portable(system: str) -> str:
    """Return a system's text that means the same in any folder: what files say, and checkpoints where they lie."""
    head = head_of(system)
    settings = system[len(head) + 1 :]
    if is_system_file(head):
        return portable(with_settings(read_system_text(head), settings))
    pairs = (text.partition("=") for text in settings.split(",") if text.strip())
    texts = (f"{key.strip()}={anywhere(value.strip())}" for key, _, value in pairs)
    return with_settings(anywhere(head), ",".join(texts))


def anywhere(name: str) -> str:
    """Return a name as it is, of a checkpoint with the path where it lies."""
    return load_checkpoint(name.removeprefix(LEARNED))[0] if name.startswith(LEARNED) else name


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
