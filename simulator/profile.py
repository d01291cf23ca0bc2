"""Profile: the fitted iteration times of one device, model and tensor parallelism, and its JSON file.

The formula is in iteration_time.py. A file holds one object with the fields of Profile; those with a default may be
left out, and `fit`, how it was come by, is for the reader only. Written by `servegym calibrate` or by hand.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from servegym.traces.names import near_match

PROFILE_BLOCK_SIZE = 16  # tokens in a block of kv_blocks_default
COEFFICIENTS = (
    "c0_ms",
    "c_token_ms",
    "c_above_knee_ms",
    "c_decode_step_ms",
    "c_seq_ms",
    "c_kv_ms",
    "c_prefill_step_ms",
    "c_prefill_attention_ms",
)
SUFFIX = ".json"  # by which a name is known as a file
FIT = "fit"  # the key of a file that is no field
MAX_VALUE, MAX_CALIBRATION = 1e6, 1e3  # of coefficients in ms, and of the factor on them
NEVER_ZERO = ("c0_ms", "calibration")  # an iteration takes time
MAX_COUNT = 2**31 - 1
KEYS, TEXTS = ("device", "model"), ("source", "licence", "note")
UNKNOWABLE = (
    "fit_mape_pct",
    "max_prefill_tokens",
    "max_kv_tokens",
    "kv_bytes_per_token",
    "kv_blocks_default",
)  # or None
LEAST_COUNT = {
    "tensor_parallel": 1,
    "knee_tokens": 0,
    "max_prefill_tokens": 0,
    "max_kv_tokens": 0,
    "kv_bytes_per_token": 1,
    "kv_blocks_default": 1,
}


@dataclass(frozen=True)
class Profile:
    """One row of profiles.csv or one file; `*_ms` are milliseconds, None is unknown."""

    device: str
    model: str
    tensor_parallel: int
    knee_tokens: int
    c0_ms: float
    c_token_ms: float
    c_above_knee_ms: float
    c_decode_step_ms: float
    c_seq_ms: float
    c_kv_ms: float
    c_prefill_step_ms: float
    c_prefill_attention_ms: float
    fit_mape_pct: float | None = None
    max_prefill_tokens: int | None = None  # the fitted range: tokens prefilled in one iteration
    max_kv_tokens: int | None = None  # and context read by its decodes
    kv_blocks_default: int | None = None
    calibration: float = 1.0
    source: str = ""
    licence: str = ""
    note: str = ""
    kv_bytes_per_token: int | None = None  # what migration copies

    @property
    def is_estimate(self) -> bool:
        """Whether it was computed from datasheets and never measured."""
        return self.source.startswith("datasheet estimate")

    @property
    def name(self) -> str:
        """device/model/tpN, the key that configs use."""
        return f"{self.device}/{self.model}/tp{self.tensor_parallel}"

    def kv_blocks(self, block_size: int) -> int:
        """Return the default KV blocks of that many tokens; ValueError if there is no default."""
        if self.kv_blocks_default is None:
            raise ValueError(f"{self.name} has no default number of KV blocks; give kv_blocks")
        return self.kv_blocks_default * PROFILE_BLOCK_SIZE // block_size

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Profile":
        """Return the profile of values by field name; ValueError lists missing ones, names a bad one."""
        known = {f.name: f for f in fields(cls)}
        missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
        if missing:
            raise ValueError(f"missing {', '.join(missing)}")
        for name in values:
            if name not in known:
                raise ValueError(f"unknown field {name!r}; {near_match(name, known)}")
        return cls(**{n: checked(n, value) for n, value in values.items()})

    def to_json(self, fit: Mapping[str, Any] | None = None) -> str:
        """Return the text of the profile's file; fit: how it was come by."""
        document = asdict(self) | ({} if fit is None else {FIT: fit})
        return json.dumps(document, indent=2, allow_nan=False)

    def save(self, path: str | Path, fit: Mapping[str, Any] | None = None) -> None:
        """Write the profile's file; ValueError for a path by which configs would not know it."""
        if not str(path).endswith(SUFFIX):
            raise ValueError(f"{str(path)!r}: the file of a profile must end in {SUFFIX}")
        Path(path).write_text(self.to_json(fit) + "\n", encoding="utf-8")


def read_profile(path: str | Path) -> Profile:
    """Read a profile's file. ValueError names the file and what is wrong."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"profile {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"profile {str(path)!r} is not JSON: {error}") from None
    if not isinstance(values, dict) or not values.keys() & set(COEFFICIENTS):
        raise ValueError(f"{path} is not a profile: a JSON object with {COEFFICIENTS[0]} and so on")
    try:
        return Profile.from_mapping({name: v for name, v in values.items() if name != FIT})
    except ValueError as error:
        raise ValueError(f"profile {str(path)!r}: {error}") from None


def checked(name: str, value: Any) -> Any:
    """Return the value of a field; ValueError for one that it cannot have."""
    if value is None and name in UNKNOWABLE:
        return None
    if name in TEXTS:
        is_good, rule = isinstance(value, str), "must be a text"
    elif name in KEYS:
        is_good = isinstance(value, str) and value != "" and "/" not in value
        rule = "must be a name without /"
    elif name in LEAST_COUNT:
        is_good = type(value) is int and LEAST_COUNT[name] <= value <= MAX_COUNT
        rule = f"must be a whole number >= {LEAST_COUNT[name]}"
    else:
        return checked_amount(name, value)
    if not is_good:
        raise ValueError(f"{name} = {value!r}; {rule}")
    return value


def checked_amount(name: str, value: Any) -> float:
    """Return a coefficient, factor or percentage; ValueError for what is no number in its range."""
    least = ">" if name in NEVER_ZERO else ">="
    most = MAX_CALIBRATION if name == "calibration" else MAX_VALUE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= most and (value > 0 or least == ">="):
        return float(value)
    raise ValueError(f"{name} = {value!r}; must be {least} 0 and <= {most:,.0f}")
