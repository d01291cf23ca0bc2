"""The names of a whole parameter's values, read from its unit: "0 exponential, 1 linear, 2 vector".

A policy's function takes numbers; people and reports take names. A parameter has labels if its unit names every value
from low to high, else none.
"""

import re

from servegym.simulator.policy import Param

NAMED = re.compile(r"(\d+) ([^,:()]+)")
MOST_NAMED = 20


def labels_of(param: Param) -> dict[str, int]:
    """Return the values of a whole parameter by name, {} where its unit does not name them all."""
    if not param.is_whole or param.high - param.low > MOST_NAMED:
        return {}
    named = {name.strip(): int(number) for number, name in NAMED.findall(param.unit)}
    is_complete = set(named.values()) == set(range(int(param.low), int(param.high) + 1))
    return named if is_complete else {}
