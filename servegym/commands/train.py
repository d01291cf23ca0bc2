"""`servegym train`: fit or train a scheduler, and write it as a checkpoint that `learned:FILE` names."""

import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES
from importlib import import_module
from pathlib import Path
from typing import Any

from servegym.commands.arguments import note, parse
from servegym.traces.names import near_match

# One module an algorithm, imported when it is asked for. Each has DECISIONS, what it trains; COMPARE, a command that
# plays the checkpoint {file} beside rivals; Options, a dataclass whose fields are its options; and
# train(options, command), which writes a checkpoint and returns its card with "file".
ALGORITHMS = {
    "cem": "servegym.agents.cem",
    "ppo": "servegym.agents.ppo",
    "maskable-ppo": "servegym.agents.maskable_ppo",
    "clone": "servegym.agents.cloning",
}
OF_SERVE = {"cem": "servegym.agents.serve_cem"}  # where another module trains Serve
DEFAULT = "cem"
SUMMARIES = {
    "cem": "a linear score of each instance, by cross-entropy search over whole runs; minutes on two cores",
    "ppo": "a network over the set of instances, by Stable-Baselines3's PPO; minutes on one core",
    "maskable-ppo": "the same, by sb3-contrib's MaskablePPO",
    "clone": "the same network, choosing as a teacher does (--teacher SYSTEM); a start for ppo",
}
DESCRIPTION = f"""Train a scheduler and write a checkpoint: FILE.safetensors and its card, FILE.json.

usage: servegym train DECISION [--algo NAME] [OPTIONS]

decisions:
  dispatch      an instance for each request, with every algorithm
  serve         a tier's queue and an instance, together, with cem (docs/serve.md)

algorithms:
{chr(10).join(f"  {name:<14}{text}" for name, text in SUMMARIES.items())}

examples:
  servegym train dispatch --objective mean-e2e --out out/mine
  servegym train dispatch --algo cem --objective ttft-slo --seed 1 --out out/ttft
  servegym train dispatch --out out/mine --resume
  servegym train serve --algo cem --objective goodput --out out/serve
  servegym compare --systems learned:out/mine,block,least-requests --scenario tight --load .97

servegym train DECISION --algo NAME --help lists the options of an algorithm."""


def run(arguments: Sequence[str]) -> int:
    """Train, write the checkpoint and say where it is."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(DESCRIPTION)
        return 0
    decision, *rest = arguments
    if decision.startswith("-"):
        raise ValueError(
            f"{decision} stands before the decision; write servegym train DECISION {decision} ..."
        )
    is_json, rest = "--json" in rest, [each for each in rest if each != "--json"]
    algorithm, rest = algorithm_in(rest)
    modules = [imported(each[algorithm]) for each in (ALGORITHMS, OF_SERVE) if algorithm in each]
    trained = {decision: module for module in modules for decision in module.DECISIONS}
    if decision not in trained:
        raise ValueError(
            f"unknown decision {decision!r} of {algorithm}; {near_match(decision, trained)}"
        )
    module = trained[decision]
    options = parse(
        module.Options, rest, f"train {decision} --algo {algorithm}", module.__doc__ or ""
    )
    options.check()
    options.out = options.out.expanduser()
    with reserved(options.out):
        card = module.train(options, shlex.join(["servegym", "train", *arguments]))
    print(json.dumps(card, indent=2, allow_nan=False) if is_json else card["file"])
    note(f"play it with: {module.COMPARE.format(file=shlex.quote(card['file']))}")
    return 0


def imported(module: str) -> Any:
    """Return an algorithm's module; RuntimeError naming the extra, if that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("servegym"):
            raise
        raise RuntimeError(
            f"this algorithm needs PyTorch and Stable-Baselines3: pip install 'servegym[rl]' ({error})"
        ) from None


@contextmanager
def reserved(out: Path) -> Iterator[None]:
    """Make the folder of a checkpoint before the work, and keep its name to this process while it works.

    ValueError if another process trains under that name, or there is none; OSError if nothing can be written there.
    """
    if not out.name:
        raise ValueError(f"--out {out} names no file")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise OSError(EACCES, os.strerror(EACCES), str(out.parent))
    path = out.with_name(f"{out.name.removesuffix('.safetensors')}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(
                file, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # it ends with the process, however that ends
        except BlockingIOError:
            raise ValueError(f"another process trains {out}; name another --out") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def algorithm_in(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the algorithm that --algo names, by default DEFAULT, and the other arguments."""
    rest, algorithm = list(arguments), DEFAULT
    for k, each in enumerate(rest):
        if each == "--algo" or each.startswith("--algo="):
            if each == "--algo" and k + 1 == len(rest):
                raise ValueError("--algo is without a name")
            algorithm = rest[k + 1] if each == "--algo" else each.partition("=")[2]
            del rest[k : k + (2 if each == "--algo" else 1)]
            break
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; {near_match(algorithm, ALGORITHMS)}")
    return algorithm, rest
