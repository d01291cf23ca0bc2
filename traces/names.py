"""Names a user may misspell: what to say when one is unknown."""

from collections.abc import Iterable
from difflib import get_close_matches


def near_match(name: object, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" when a known name is near, then the list of known names."""
    listed = list(known)
    near = get_close_matches(str(name), listed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(listed)}"
