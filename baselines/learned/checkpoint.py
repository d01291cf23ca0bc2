"""Checkpoints: a file of float32 tensors (safetensors) and beside it a card (JSON, the same stem).

    write_checkpoint("out/mine", {"weight": weights}, {"decision": "dispatch", "architecture": "linear"})
    read_checkpoint("out/mine").card["features"]

The card says what the tensors are, which features they were trained on, and how. What is no number or name of a
tensor is never read from the file, so that one from anybody can be opened. Format: docs/policies.md.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from servegym.baselines import features
from servegym.baselines.learned.layouts import MOST_HIDDEN, Layout, layout_of
from servegym.traces.names import near_match

FORMAT = 1
SUFFIX = ".safetensors"
HASH = "tensors_sha256"  # in a card: of its file of tensors; cards from before have none
SHIPPED = Path(__file__).resolve().parents[1] / "checkpoints"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A card and its tensors, checked: ValueError for what does not fit together (field and value).

    card: decision, architecture, hidden, features, objective, ... tensors: float32 by name. sha256: of the file of
    tensors, "" of one that was read from none.
    """

    card: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    sha256: str = ""

    def __post_init__(self) -> None:
        layout = _checked_layout(self.card)
        _check_features(self.card, layout)
        _check_tensors(self.tensors, layout.shapes(self.hidden))

    @property
    def design(self) -> tuple[str, str]:
        """Its decision and its architecture."""
        return self.card["decision"], self.card["architecture"]

    @property
    def hidden(self) -> int:
        """The width of hidden layers; 0 for an architecture that has none."""
        return self.card.get("hidden", 0)

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        by, of = self.card.get("algorithm"), self.card.get("objective")
        trained = (f", trained by {by}" if by else "") + (f" for {of}" if of else "")
        return f"A learned {self.card['architecture']} score{trained}."


def feature_names() -> dict[str, list[str]]:
    """Return the names of all features, by row, as a card of this version has them."""
    tables = {
        "instance": features.INSTANCE_FEATURES,
        "request": features.REQUEST_FEATURES,
        "queue": features.QUEUE_FEATURES,
        "cluster": features.CLUSTER_FEATURES,
    }
    return {part: [feature.name for feature in table] for part, table in tables.items()}


def shipped_names() -> list[str]:
    """Return the names of the checkpoints that come with the package, sorted."""
    return sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}"))


def checkpoint_path(file: str | Path) -> Path:
    """Return where a checkpoint lies, absolute: of a shipped name, or a path; ValueError if there is none."""
    shipped = shipped_names()
    if file in shipped:
        return SHIPPED / f"{file}{SUFFIX}"
    path = _with_suffix(file).absolute()
    if path.is_file():
        return path
    hint = f"shipped: {near_match(file, shipped)}" if shipped else "none are shipped"
    raise ValueError(f"checkpoint = {str(file)!r}; there is no file {path} ({hint})")


def name_of(path: Path) -> str:
    """Return what a checkpoint is called from anywhere: its shipped name, or the path."""
    return path.stem if path.parent == SHIPPED else str(path)


def read_checkpoint(file: str | Path) -> Checkpoint:
    """Read a checkpoint by shipped name or path; ValueError that says what is wrong with which file."""
    return parsed_checkpoint(*checkpoint_bytes(file))


def checkpoint_bytes(file: str | Path) -> tuple[Path, bytes, bytes]:
    """Return where a checkpoint lies, and what stands in its tensors' file and in its card; ValueError without."""
    path = checkpoint_path(file)
    card = path.with_suffix(".json")
    if not card.is_file():
        raise ValueError(f"{path}: its card {card.name} is missing")
    return path, path.read_bytes(), card.read_bytes()


def parsed_checkpoint(path: Path, content: bytes, card: bytes) -> Checkpoint:
    """Return the checkpoint that the bytes of both files say."""
    with _naming(path.with_suffix(".json")):
        said = _parsed_card(card)
    with _naming(path):
        sha256 = hashlib.sha256(content).hexdigest()
        checkpoint = Checkpoint(said, _parsed_tensors(content), sha256)
        if said.get(HASH, sha256) != sha256:
            raise ValueError(
                f"is not the file that its card was written with: {HASH} = {said[HASH]!r} there, {sha256!r} here"
            )
        return checkpoint


def write_checkpoint(
    path: str | Path, tensors: Mapping[str, np.ndarray], card: Mapping[str, Any]
) -> Path:
    """Write PATH.safetensors and PATH.json, and return the first; folders are made, files replaced.

    tensors: float32 by name. card: at least decision and architecture (and hidden of a set-mlp), in plain JSON; format,
    features and servegym, the version, are filled in where they are missing, the hash of the tensors always. ValueError
    as in reading, before anything is written.
    """
    filled = {"format": FORMAT, "features": feature_names(), "servegym": version("servegym")}
    checkpoint = Checkpoint(filled | dict(card), dict(tensors))
    contiguous = {name: np.ascontiguousarray(each) for name, each in checkpoint.tensors.items()}
    content = safetensors.numpy.save(contiguous)
    said = {**checkpoint.card, HASH: hashlib.sha256(content).hexdigest()}
    try:
        text = json.dumps(said, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"card: {error}; it must be plain JSON") from None
    path = _with_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_files({path: content, path.with_suffix(".json"): text.encode()})
    return path


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write files under other names, all of them, then give them theirs, in order: none is ever half a file."""
    parts = {path: path.with_name(f"{path.name}.part") for path in contents}
    for path, content in contents.items():
        parts[path].write_bytes(content)
    for path, part in parts.items():
        os.replace(part, path)


def _with_suffix(file: str | Path) -> Path:
    path = Path(os.path.expanduser(file))
    return path if path.suffix == SUFFIX else path.parent / f"{path.name}{SUFFIX}"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file in front of what is wrong in it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parsed_card(text: bytes) -> dict[str, Any]:
    try:
        card = json.loads(text)
    except (ValueError, RecursionError) as error:  # of JSON, or of UTF-8
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(card, dict):
        raise ValueError(f"is a {type(card).__name__}; must be a JSON object")
    return card


def _parsed_tensors(content: bytes) -> dict[str, np.ndarray]:
    try:
        return safetensors.numpy.load(content)
    except Exception as error:  # its own, or KeyError and TypeError for a dtype that numpy has not
        raise ValueError(f"is not a safetensors file of float32 ({error})") from None


def _checked_layout(card: Mapping[str, Any]) -> Layout:
    """Return what the card says that the tensors are."""
    for name in ("format", "decision", "architecture", "features"):
        if name not in card:
            raise ValueError(f"card: {name} is missing")
    if card["format"] != FORMAT:
        raise ValueError(f"format = {card['format']!r}; must be {FORMAT}")
    layout = layout_of(card["decision"], card["architecture"])
    hidden = card.get("hidden")
    if layout.has_hidden and (type(hidden) is not int or not 1 <= hidden <= MOST_HIDDEN):
        raise ValueError(f"hidden = {hidden!r}; must be a whole number in 1 .. {MOST_HIDDEN}")
    if not layout.has_hidden and hidden is not None:
        raise ValueError(f"hidden = {hidden!r}; {card['architecture']} has no hidden layer")
    return layout


def _check_features(card: Mapping[str, Any], layout: Layout) -> None:
    """ValueError unless the features that it was trained on are those of this version, in their order."""
    given, known = card["features"], feature_names()
    if not isinstance(given, Mapping):
        raise ValueError(f"features = {given!r}; must be names by {', '.join(known)}")
    for part in (*layout.parts, *given):
        if part not in known:
            raise ValueError(f"features: unknown row {part!r}; {near_match(part, known)}")
        if part not in given:
            raise ValueError(f"features: {part!r} is missing")
        if given[part] != known[part]:
            raise ValueError(
                f"features: {part!r} is of another version: {_difference(given[part], known[part])}"
            )


def _difference(given: Any, known: list[str]) -> str:
    if not isinstance(given, list):
        return f"{given!r} is no list of names"
    gone = [name for name in given if name not in known]
    new = [name for name in known if name not in given]
    if not gone and not new:
        return f"the same names in another order or number, {given}; here {known}"
    said = [(gone, "this version lacks"), (new, "the checkpoint lacks")]
    return "; ".join(f"{what} {', '.join(map(str, names))}" for names, what in said if names)


def _check_tensors(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name in tensors:
        if name not in shapes:
            raise ValueError(f"unknown tensor {name!r}; {near_match(name, shapes)}")
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(
                f"tensor {name!r} is missing; there are {', '.join(tensors) or 'none'}"
            )
        tensor = tensors[name]
        if tensor.dtype != np.float32 or tensor.shape != shape:
            raise ValueError(
                f"tensor {name!r} is {tensor.dtype}{list(tensor.shape)}; must be float32{list(shape)}"
            )
        if not np.isfinite(tensor).all():
            at = np.unravel_index(int(np.argmin(np.isfinite(tensor))), shape)
            where = ", ".join(str(int(k)) for k in at)
            raise ValueError(f"{name}[{where}] = {tensor[at]}; must be finite")
