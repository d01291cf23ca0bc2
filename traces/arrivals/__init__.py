"""Arrival processes by name; `generate(..., arrivals=NAME, ...)` takes their fields as parameters.

To add one: a frozen dataclass with `draw` in a file here, and its line in PROCESSES.
"""

from dataclasses import MISSING, fields
from typing import Any

from servegym.traces.arrivals.clients import Clients
from servegym.traces.arrivals.markov import Mmpp, OnOff
from servegym.traces.arrivals.phases import UniformPhases
from servegym.traces.arrivals.process import ArrivalProcess, Seed
from servegym.traces.arrivals.rate import Diurnal, Drift, Modulated, ReplayedRate
from servegym.traces.arrivals.renewal import Deterministic, Gamma, Poisson, Weibull
from servegym.traces.names import near_match

PROCESSES: dict[str, type] = {
    "poisson": Poisson,
    "deterministic": Deterministic,
    "gamma": Gamma,
    "weibull": Weibull,
    "on-off": OnOff,
    "mmpp": Mmpp,
    "drift": Drift,
    "diurnal": Diurnal,
    "replayed-rate": ReplayedRate,
    "modulated": Modulated,
    "phases": UniformPhases,
    "clients": Clients,
}


def arrival_process(name: str, **parameters: Any) -> ArrivalProcess:
    """Return a process; ValueError names an unknown process or parameter, a missing or a bad one."""
    if name not in PROCESSES:
        raise ValueError(f"arrivals = {name!r}; {near_match(name, [*PROCESSES, 'fitted'])}")
    chosen = PROCESSES[name]
    known = {field.name: field.default is MISSING for field in fields(chosen)}
    for parameter, value in parameters.items():
        if parameter not in known:
            listed = near_match(parameter, known) if known else "it has no parameters"
            raise ValueError(f"{parameter} = {value}; no parameter of {name} arrivals; {listed}")
    if missing := [p for p, is_required in known.items() if is_required and p not in parameters]:
        raise ValueError(f"{name} arrivals need {', '.join(missing)}")
    return chosen(**parameters)


def process_name(process: ArrivalProcess) -> str:
    """Return the name of a process; of a user's own class, its class name."""
    names = {cls: name for name, cls in PROCESSES.items()}
    return names.get(type(process), type(process).__name__)


__all__ = [
    "PROCESSES",
    "ArrivalProcess",
    "Clients",
    "Deterministic",
    "Diurnal",
    "Drift",
    "Gamma",
    "Mmpp",
    "Modulated",
    "OnOff",
    "Poisson",
    "ReplayedRate",
    "Seed",
    "UniformPhases",
    "Weibull",
    "arrival_process",
    "process_name",
]
