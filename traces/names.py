"""Names a user may misspell, and the settings that may follow one: name:a=1,b=2."""

from collections.abc import Iterable
from difflib import get_close_matches


def near_match(name: object, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" when a known name is near, then the list of known names."""
    listed = list(known)
    if not listed:
        return "it takes none"
    near = get_close_matches(str(name), listed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(listed)}"


def read_settings(what: str, wanted: str, settings: str) -> dict[str, float]:
    """Read "a=1,b=2", the part of `wanted` behind its colon; ValueError names the part that is no setting."""
    values: dict[str, float] = {}
    for setting in filter(None, settings.split(",")):
        name, equals, value = setting.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"{what} = {wanted!r}; {setting!r} must be parameter=number")
    return values
