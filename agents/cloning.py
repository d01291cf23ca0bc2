"""Cloning: the instance-set policy learns to choose as a teacher does, a baseline or a learned policy.

    servegym train dispatch --algo clone --teacher learned:out/cem --out out/cloned

Cross-entropy on the teacher's choices; first in the states that the teacher comes to, then in those that the student
comes to, labelled by the teacher, all rounds together (DAgger: Ross, Gordon and Bagnell, A Reduction of Imitation
Learning and Structured Prediction to No-Regret Online Learning, 2011). Minutes. What the teacher's system sets of the
cluster (estimator, remaining) holds while it teaches; played later, the student gets what its own cluster sets. A
system that sets more (a queue, an order, migration) is no teacher: a clone has its dispatch alone. A start for
`--algo ppo --start`, or a fast stand-in for a teacher that plays futures.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from servegym.agents.evaluation import as_json
from servegym.agents.export import tensors_of_network, write_network
from servegym.agents.fleets import FleetVecEnv
from servegym.agents.objectives import find_objective
from servegym.agents.ppo import check_hidden
from servegym.agents.scenarios import Mix
from servegym.agents.search import Real, Whole
from servegym.agents.selection import REFERENCE, Validation
from servegym.agents.set_policy import HIDDEN, SetActorCritic, tensors_of
from servegym.agents.training_state import COMPARE_DISPATCH, note, note_replaced
from servegym.baselines.systems import find_system
from servegym.envs.baseline_policy import BaselinePolicy
from servegym.experiments.progress import announce_compilation
from servegym.simulator.config import ClusterConfig

DECISIONS = ("dispatch",)
COMPARE = COMPARE_DISPATCH
# What a teacher's system may set beside dispatch: what it knows of lengths, as in LENGTHS (scenarios.py).
TOLD = ("estimator", "estimator_params", "remaining", "remaining_params")
Rows = dict[str, torch.Tensor]


@dataclass(kw_only=True)
class Options:
    """Whom to clone, and how."""

    teacher: str = "marginal:remaining=residual"
    """A system: a baseline with options behind a colon, or learned:FILE."""
    objective: str = "mean-e2e"
    """What validation reports; cloning does not look at it."""
    seed: Whole = 0
    """Of network, order and episodes."""
    out: Path = Path("out/cloned")
    """Where the checkpoint goes: OUT.safetensors and OUT.json."""
    rounds: Whole = 3
    """Rounds of collecting: the teacher acts in the first, the student in the others."""
    steps: Whole = 120_000
    """Decisions collected in a round."""
    epochs: Whole = 6
    """Passes over all that is collected, after each round."""
    batch: Whole = 1_024
    """Decisions of a gradient step."""
    learning_rate: Real = 0.003
    """Of Adam; falls linearly to 0 in each round."""
    instances: tuple[int, ...] = (4, 8, 16)
    """Fleet sizes."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Workloads by name."""
    lengths: tuple[str, ...] = ("predicted", "constant")
    """What is known of output lengths: predicted (with error .5), constant (their mean), learned, oracle."""
    loads: tuple[float, float] = (0.85, 1.05)
    """Least and largest load."""
    scenarios: tuple[str, ...] = ("tight", "default")
    """Scenarios by name."""
    loads_each: Whole = 3
    """Loads at which each size, workload, lengths and scenario is played."""
    requests: Whole = 6_000
    """Requests of an episode."""
    hidden: Whole = HIDDEN
    """Width of the network."""

    def mix(self) -> Mix:
        """Return what validation cases are drawn from."""
        return Mix(self.instances, self.workloads, self.lengths, self.loads, self.scenarios)

    def check(self) -> None:
        """ValueError for what cannot be cloned."""
        check_teacher(self.teacher)
        find_objective(self.objective)
        self.mix()
        for name in ("rounds", "steps", "epochs", "batch", "loads_each"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; must be >= 1")
        check_hidden(self.hidden)
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate = {self.learning_rate}; must be > 0 and finite")

    def identity(self) -> dict[str, Any]:
        """Return what is asked for, in plain JSON."""
        return json.loads(json.dumps(asdict(self) | {"out": str(self.out)}))


def check_teacher(teacher: str) -> None:
    """ValueError for a system that sets more than dispatch and what is known of lengths: a clone has dispatch alone."""
    differs = find_system(teacher).manifest(ClusterConfig())["config"]
    lost = {name: value for name, value in differs.items() if name not in TOLD}
    if lost:
        said = ", ".join(f"{name}={value}" for name, value in lost.items())
        raise ValueError(
            f"teacher = {teacher!r}; it sets {said}, and a clone copies dispatch alone: name a system that sets "
            f"nothing but {', '.join(TOLD)}"
        )


def train(options: Options, command: str) -> dict[str, Any]:
    """Clone, write the checkpoint and return its card; ValueError for bad options."""
    options.check()
    note_replaced(options.out)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    announce_compilation()
    begun_s = time.monotonic()
    validation = Validation(options.mix(), options.objective)
    env = make_env(options)
    teacher = BaselinePolicy(options.teacher, env)
    student = SetActorCritic(options.hidden)
    rows, labels, seen = [], [], env.reset()
    agreement = 0.0
    for k in range(options.rounds):
        seen, found, taught = collect(env, teacher, student if k else None, options.steps, seen)
        agreement = agreeing(student, found, taught)
        rows.append(found)
        labels.append(taught)
        fit(student, stacked(rows), torch.cat(labels), options)
        score = validation.score(validation.costs(tensors_of_network(student.actor)))
        note(
            f"round {k + 1}/{options.rounds}, {time.monotonic() - begun_s:.0f} s: agreed with {agreement:.1%} of "
            f"new choices; {score:+.2%} of {REFERENCE}'s {options.objective}"
        )
    note(f"the teacher plays {len(validation.cases)} validation cases, for the card")
    taught_costs = validation.costs_of_system(options.teacher)
    report = validation.report(tensors_of_network(student.actor))
    card = {
        "objective": options.objective,
        "algorithm": "clone",
        "command": command,
        "seed": options.seed,
        "wall_s": round(time.monotonic() - begun_s, 1),
        "trained_on": options.identity(),
        "evaluation": report
        | {"teacher_score": as_json(validation.score(taught_costs)), "agreement": agreement},
    }
    file = write_network(student.actor, options.out, card)
    return {"file": str(file)} | card


def make_env(options: Options) -> FleetVecEnv:
    """Return the environments in which the teacher teaches, with what its system sets."""
    return FleetVecEnv(
        options.instances,
        options.workloads,
        lengths=options.lengths,
        scenarios=options.scenarios,
        loads=options.loads,
        loads_each=options.loads_each,
        replicas=1,
        requests=options.requests,
        seed=options.seed,
        system=options.teacher,
    )


def collect(
    env: FleetVecEnv,
    teacher: BaselinePolicy,
    student: SetActorCritic | None,
    steps: int,
    seen: dict[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], Rows, torch.Tensor]:
    """Play on, the student or else the teacher acting; return what is seen last, states and the teacher's choices."""
    rows, labels = [], []
    for _ in range(-(-steps // env.num_envs)):
        taught, _ = teacher.predict(seen)
        rows.append(tensors_of(seen))
        labels.append(torch.as_tensor(taught))
        actions = taught
        if student is not None:
            with torch.no_grad():
                actions = student.forward_actor(rows[-1]).argmax(1).numpy()
        env.step_async(actions)
        seen, *_ = env.step_wait()
    return seen, stacked(rows), torch.cat(labels)


def fit(student: SetActorCritic, rows: Rows, labels: torch.Tensor, options: Options) -> None:
    """Move the student's actor towards the labels (mutates it)."""
    optimizer = torch.optim.Adam(student.actor.parameters(), lr=options.learning_rate)
    n = len(labels)
    total = options.epochs * -(-n // options.batch)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1.0 - k / total)
    for _ in range(options.epochs):
        for some in torch.randperm(n).split(options.batch):
            logits = student.forward_actor({part: each[some] for part, each in rows.items()})
            loss = cross_entropy(logits, labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()


def agreeing(student: SetActorCritic, rows: Rows, labels: torch.Tensor) -> float:
    """Return the share of states in which the student would choose as the teacher did."""
    with torch.no_grad():
        return float((student.forward_actor(rows).argmax(1) == labels).float().mean())


def stacked(rows: list[Rows]) -> Rows:
    """Return batches of observations behind each other."""
    return {part: torch.cat([each[part] for each in rows]) for part in rows[0]}
