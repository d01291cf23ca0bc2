"""The command line: `servegym compare | simulate | train | tune | trace | calibrate | bench | list`, a module each.

Each command is imported when it is called, so help is quick. Exit codes: 0 done, 1 a run failed,
2 a wrong option, name or file (one line on stderr says which), 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from servegym.commands.arguments import one_line

COMMANDS = {
    "compare": "run systems on the same traces: differences with intervals and verdicts",
    "simulate": "run one system once",
    "train": "train a scheduler: a checkpoint that compare plays as learned:FILE",
    "tune": "search a system's settings with Optuna",
    "trace": "describe, convert, fit or plot a request log",
    "calibrate": "fit iteration times to measured iterations of an engine",
    "bench": "measure speed, fidelity or the compile cache against their targets",
    "list": "name the systems, policies, profiles or workloads there are",
}

EXAMPLES = """examples:
  servegym compare --workload azure-conv --systems round-robin,least-requests --load 0.95
  servegym compare --trace trace.csv --systems random,power-of-two --instances 8 --out out/
  servegym simulate --workload azure-conv --system least-requests --rate 40
  servegym train dispatch --objective mean-e2e --out out/mine
  servegym tune headroom --trials 100 --workers 2
  servegym trace describe trace.csv
  servegym bench speed
  servegym list systems"""


def help_text() -> str:
    """Return what `servegym --help` prints."""
    commands = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
    return (
        "usage: servegym COMMAND [OPTIONS]\n\nSchedule a simulated cluster of LLM serving instances.\n\n"
        f"commands:\n{commands}\n\n{EXAMPLES}\n\n"
        "servegym COMMAND --help lists the options of a command."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Errors of the user's become one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else "--help"
    speaker = f"servegym {name}" if name in COMMANDS else "servegym"
    try:
        if name in ("-h", "--help", "help"):
            print(help_text())
            return 0
        if name == "--version":
            print(f"servegym {version('servegym')}")
            return 0
        if name not in COMMANDS:
            raise ValueError(unknown_command(name))
        return import_module(f"servegym.commands.{name}").run(given[1:])
    except KeyboardInterrupt:
        return complain(speaker, "interrupted", 130)
    except BrokenPipeError:  # the reader of our output went away: nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        return complain(speaker, f"{error.strerror or error}{place}", 2)
    except (ValueError, OverflowError) as error:
        return complain(speaker, error, 2)
    except MemoryError:
        return complain(speaker, "not enough memory for so many requests, instances or seats", 2)
    except RuntimeError as error:
        return complain(speaker, error, 1)


def unknown_command(name: str) -> str:
    """Say that there is no such command, with the nearest there is."""
    from servegym.traces.names import near_match

    return f"unknown command {name!r}; {near_match(name, COMMANDS)}"


def complain(speaker: str, error: object, code: int) -> int:
    """Print one line on stderr and return the exit code."""
    print(f"{speaker}: {one_line(str(error))}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
