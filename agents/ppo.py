r"""PPO: dispatch by the instance-set policy, trained on rewards that add up to the metric.

    servegym train dispatch --algo ppo --seed 0 --out out/ppo
    servegym train dispatch --algo ppo --start out/cloned --network --scenarios tight default \
        --lengths predicted constant --loads .85 1.05 --replicas 8 --batch 4096 --epochs 2 --learning-rate .001 \
        --sharpen 1 --steps 2097152 --out out/better

Proximal policy optimisation of Stable-Baselines3 (Schulman et al., 2017) over fleets of several sizes, loads and
scenarios (fleets.py), with advantages against replicas that had the same luck (rollouts.py); the reward is the
objective's, discounted by time alone. From scratch the linear score alone is learned; what makes validation worse is
undone, and logits are sharpened. The network that does best natively on validation cases is written (selection.py).
OUT.state.json and its neighbours, for --resume, are for your own runs: only weights are read from them, and episodes
begin anew. Left out: shaped rewards, recurrent networks, observation statistics.
"""

import glob
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch

from servegym.agents.candidates import linear_space
from servegym.agents.export import network_of_tensors, read_network, write_network
from servegym.agents.fleets import FleetVecEnv
from servegym.agents.heap import heap_kept
from servegym.agents.objectives import find_objective
from servegym.agents.rollouts import FORGOTTEN, PairedRolloutBuffer
from servegym.agents.scenarios import Mix
from servegym.agents.search import Real, Whole
from servegym.agents.selection import REFERENCE, Selection, Validation
from servegym.agents.set_policy import HIDDEN, SetPolicy
from servegym.agents.training_state import (
    COMPARE_DISPATCH,
    Record,
    check_place,
    mark_finished,
    note,
    read_kept,
    state_file,
    write_kept,
)
from servegym.baselines.learned.checkpoint import SUFFIX
from servegym.baselines.learned.layouts import MOST_HIDDEN
from servegym.experiments.progress import announce_compilation

from stable_baselines3 import PPO  # isort: skip  # after fleets, which names the extra
from stable_baselines3.common.callbacks import BaseCallback  # isort: skip

DECISIONS = ("dispatch",)
COMPARE = COMPARE_DISPATCH


class Algorithm(NamedTuple):
    """What differs between PPO and MaskablePPO."""

    name: str
    model: Any
    policy: type
    buffer: type


PLAIN = Algorithm("ppo", PPO, SetPolicy, PairedRolloutBuffer)


@dataclass(kw_only=True)
class Options:
    """What to train, and how."""

    objective: str = "mean-e2e"
    """mean-e2e, p99-e2e, ttft-slo or goodput."""
    seed: Whole = 0
    """Of network, actions and training episodes."""
    out: Path = Path("out/ppo")
    """Where the checkpoint goes: OUT.safetensors and OUT.json; OUT.state.* while it trains."""
    resume: bool = False
    """Go on from OUT.state.*, with the same options."""
    start: str | None = None
    """Checkpoint (set-mlp) to begin with, as `--algo clone` writes it; without: from scratch."""
    prior: Real = 0.3
    """From scratch: the first linear score is CEM's first one times this, a sum of what a busy instance has more of."""
    steps: Whole = 8_388_608
    """Decisions in all, rounded up to whole rollouts."""
    validate_every: Whole = 250_000
    """Least decisions between two validations, which come before a rollout; each also keeps the state."""
    tensorboard: Path | None = None
    """Folder for TensorBoard logs."""
    instances: tuple[int, ...] = (4, 8)
    """Fleet sizes."""
    workloads: tuple[str, ...] = ("azure-conv", "sharegpt")
    """Workloads by name."""
    lengths: tuple[str, ...] = ("predicted",)
    """What is known of output lengths: predicted (with error .5), constant (their mean), learned, oracle."""
    loads: tuple[float, float] = (0.75, 0.95)
    """Least and largest load; sampled choices congest a cluster at lower ones than greedy choices do."""
    scenarios: tuple[str, ...] = ("tight",)
    """Scenarios by name."""
    loads_each: Whole = 1
    """Loads at which each size, workload, lengths and scenario is played."""
    requests: Whole = 6_000
    """Requests of an episode."""
    replicas: Whole = 32
    """Environments that play the same requests, to tell what actions did from luck."""
    rollout: Whole = 4_096
    """Decisions of each environment between updates."""
    batch: Whole = 131_072
    """Decisions of a gradient step."""
    epochs: Whole = 4
    """Passes over a rollout."""
    learning_rate: Real = 0.004
    """Of Adam; falls linearly, to 0 behind the last rollout."""
    horizon_s: Real = 20.0
    """Time over which rewards are discounted, by exp(-t / horizon), s of the cluster."""
    gae_lambda: Real = 1.0
    """Of generalised advantage estimation."""
    clip: Real = 0.2
    """How far a probability may change in an update, a share of it."""
    entropy: Real = 0.0
    """Coefficient of the entropy bonus."""
    sharpen: Real = 1.08
    """What logits are multiplied by after each rollout: sampled choices come nearer to the greedy ones. 1: nothing."""
    network: bool = False
    """Learn the network as well. Without: the linear score alone, which is better from scratch."""
    undo: bool = True
    """Go back to the best network after a validation that is worse; with --no-undo go on from the last."""
    hidden: Whole = HIDDEN
    """Width of the network (from scratch); matters with --network."""

    def mix(self) -> Mix:
        """Return what validation cases are drawn from."""
        return Mix(self.instances, self.workloads, self.lengths, self.loads, self.scenarios)

    def env(self) -> FleetVecEnv:
        """Return the training environments."""
        return FleetVecEnv(
            self.instances,
            self.workloads,
            lengths=self.lengths,
            scenarios=self.scenarios,
            loads=self.loads,
            loads_each=self.loads_each,
            replicas=self.replicas,
            requests=self.requests,
            seed=self.seed,
            **find_objective(self.objective).env_options,
        )

    def check(self) -> None:
        """ValueError for what cannot be trained."""
        self.mix()
        for name in (
            "steps",
            "validate_every",
            "rollout",
            "batch",
            "epochs",
            "replicas",
            "loads_each",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; must be >= 1")
        check_hidden(self.hidden)
        for name in ("learning_rate", "horizon_s", "clip", "sharpen"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} = {getattr(self, name)}; must be > 0 and finite")
        for name in ("entropy", "prior"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} = {getattr(self, name)}; must be >= 0 and finite")
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"gae_lambda = {self.gae_lambda}; must be in [0, 1]")

    def identity(self) -> dict[str, Any]:
        """Return what a run that goes on must have been started with, in plain JSON."""
        free = {"out", "resume", "tensorboard"}
        kept = {name: value for name, value in asdict(self).items() if name not in free}
        return json.loads(json.dumps(kept))


def check_hidden(hidden: int) -> None:
    """ValueError for a width that no checkpoint has."""
    if not 1 <= hidden <= MOST_HIDDEN:
        raise ValueError(f"hidden = {hidden}; must be in 1 .. {MOST_HIDDEN}")


def train(options: Options, command: str, algorithm: Algorithm = PLAIN) -> dict[str, Any]:
    """Train, write the checkpoint and return its card. command: what was typed, for the card.

    ValueError for bad options, a state that another run left, or one that would be lost. KeyboardInterrupt: the state
    of the last validation is kept in OUT.state.*, and a line says how to go on.
    """
    options.check()
    torch.set_num_threads(1)  # networks as small as these are slower on more
    announce_compilation()
    if options.objective == "p99-e2e":
        note(
            "p99-e2e: rewards are those of mean-e2e, all that gradients see; which network is kept goes by the P99"
        )
    run = Run(options, algorithm, command)
    try:
        with heap_kept():
            run.learn()
    except KeyboardInterrupt:
        if run.selection.best_tensors is not None:
            note(f"{state_file(options.out)} has the last validation's state; go on with --resume")
        raise
    best = run.selection.best_tensors
    assert best is not None
    card = {
        "objective": options.objective,
        "algorithm": algorithm.name,
        "seed": options.seed,
        **run.record.for_card(),
        "trained_on": options.identity() | {"decisions": run.model.num_timesteps},
        "evaluation": run.validation.report(best),
    }
    file = write_network(network_of_tensors(best), options.out, card)
    mark_finished(options.out)
    return {"file": str(file)} | card


def make_model(options: Options, algorithm: Algorithm, env: FleetVecEnv) -> Any:
    """Return the untrained model of Stable-Baselines3; ValueError if no advantage of a rollout would count."""
    discounts = env.discounts(options.horizon_s)
    if (discounts**options.rollout > FORGOTTEN).any():
        least = int(np.ceil(np.log(FORGOTTEN) / np.log(discounts.max())))
        raise ValueError(
            f"rollout = {options.rollout}; must be >= {least}, the decisions that the busiest fleet makes in "
            f"horizon_s = {options.horizon_s}, or nothing would be learned from it"
        )
    share = env.num_envs * options.rollout / options.steps  # of a rollout
    return algorithm.model(
        algorithm.policy,
        env,
        # Of the decisions left when the rollout began: the last one would have 0, or less if it goes beyond `steps`.
        learning_rate=lambda left: options.learning_rate * min(1.0, max(0.0, left + share)),
        n_steps=options.rollout,
        batch_size=options.batch,
        n_epochs=options.epochs,
        gae_lambda=options.gae_lambda,
        clip_range=options.clip,
        normalize_advantage=False,  # the buffer has, group by group
        ent_coef=options.entropy,
        rollout_buffer_class=algorithm.buffer,
        rollout_buffer_kwargs={
            "discounts": discounts,
            "group_of": env.group_of,
        },
        policy_kwargs={"hidden": options.hidden},
        tensorboard_log=None if options.tensorboard is None else str(options.tensorboard),
        seed=options.seed,
        device="cpu",
    )


class Run:
    """One training run: the model, what it is selected by, and what is kept on disk to go on from."""

    def __init__(self, options: Options, algorithm: Algorithm, command: str) -> None:
        self.options, self.algorithm, self.record = options, algorithm, Record(command)
        start = None if options.start is None else read_network(options.start)
        if start is not None:
            options.hidden = start.hidden  # before options are compared with those kept
        kept = None
        if options.resume:
            kept = read_state(options, algorithm)
            self.record = Record.going_on(kept, command)
        else:
            check_place(options.out)
        self.model = make_model(options, algorithm, options.env())
        self.validation = Validation(options.mix(), options.objective)
        self.selection = Selection(self.validation, options.validate_every, self.save, options.undo)
        if start is None:
            self.model.policy.actor.begin_with(options.prior * linear_space().start)
        else:
            self.model.policy.actor.load_state_dict(start.state_dict())
        self.model.policy.actor.learn_network(options.network)
        if kept is not None:
            self._restore(kept)

    def learn(self) -> None:
        """Train up to options.steps decisions in whole rollouts, and validate the last network."""
        done = self.model.num_timesteps
        rollout = self.model.n_envs * self.options.rollout
        played = -(-self.options.steps // rollout) * rollout
        if played > self.options.steps:
            note(
                f"steps = {self.options.steps:,}: {played:,} decisions are played, in whole rollouts of {rollout:,}"
            )
        if done < self.options.steps:
            self.model.learn(
                self.options.steps - done,
                callback=[Sharpening(self.options.sharpen), self.selection],
                log_interval=1,
                tb_log_name=self.options.out.name,
                reset_num_timesteps=done == 0,
            )
            self.selection.validate()

    def save(self) -> None:
        """Write the state (after a validation) and a line for a person."""
        done, selection = self.model.num_timesteps, self.selection
        out, wall_s = self.options.out, self.record.wall_s
        out.parent.mkdir(parents=True, exist_ok=True)
        assert selection.best_tensors is not None  # a validation has been
        model, best = files_of(out, done)
        self.model.save(model)
        safetensors.numpy.save_file(selection.best_tensors, best)
        kept = {"algorithm": self.algorithm.name, "command": self.record.command}
        kept |= {"options": self.options.identity(), "wall_s": wall_s}
        kept |= {"done": done, "best_score": selection.best_score}
        write_kept(out, kept)  # until now the state is the one before, with files of its own
        remove_others(out, done)
        left_s = wall_s / done * (self.options.steps - done) if done else float("nan")
        note(
            f"{done:,}/{self.options.steps:,} decisions, {wall_s:.0f} s, about {max(0.0, left_s):.0f} s left: "
            f"{selection.last_score:+.2%} of {REFERENCE}'s {self.options.objective}, best {selection.best_score:+.2%}"
        )

    def _restore(self, kept: dict[str, Any]) -> None:
        """Go on where `save` was: weights and optimiser as they were, episodes anew."""
        done = int(kept["done"])
        model, best = files_of(self.options.out, done)
        self.model.set_parameters(str(model))
        self.model.num_timesteps = done
        anew = np.random.SeedSequence(self.options.seed, spawn_key=(done,)).generate_state(1)
        self.model.set_random_seed(int(anew[0]))
        self.selection.restore(
            safetensors.numpy.load_file(best),
            float(kept["best_score"]),
            done,
        )


class Sharpening(BaseCallback):
    """Multiplies the logits by a factor after each rollout that was learned from."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self._is_first = factor, True

    def _on_rollout_start(self) -> None:
        if not self._is_first:
            network: Any = self.model.policy
            network.actor.sharpen(self.factor)
        self._is_first = False

    def _on_step(self) -> bool:
        return True


def files_of(out: Path, done: int) -> tuple[Path, Path]:
    """Return what belongs to the state after so many decisions: the model's file, and the best network's.

    The count is in their names, so that a state that is replaced keeps its files until the new one is whole.
    """
    state = state_file(out).with_suffix(f".{done}")
    return state.with_name(f"{state.name}.zip"), state.with_name(f"{state.name}{SUFFIX}")


def remove_others(out: Path, done: int) -> None:
    """Remove the files of other states of this training than the one after so many decisions."""
    state = state_file(out).with_suffix("")
    for path in state.parent.glob(f"{glob.escape(state.name)}.*"):
        count = path.name.removeprefix(f"{state.name}.").partition(".")[0]
        if count.isdecimal() and int(count) != done and path in files_of(out, int(count)):
            path.unlink()


def read_state(options: Options, algorithm: Algorithm) -> dict[str, Any]:
    """Return what `save` wrote; ValueError as in read_kept, or if a file that belongs to it is missing."""

    def check(kept: dict[str, Any]) -> None:
        for name in ("done", "best_score"):
            float(kept[name])

    kept = read_kept(options.out, algorithm.name, options.identity(), check)
    for file in files_of(options.out, int(kept["done"])):
        if not file.is_file():
            raise ValueError(
                f"--resume: there is no {file}, which belongs to {state_file(options.out)}"
            )
    return kept
