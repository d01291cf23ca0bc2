"""Selection: what the network that is being trained would do natively, on validation cases; the best is kept.

The greedy policy is what is deployed, and training plays a sampled one, so neither rewards nor losses say how good it
is. Every so many decisions the actor is exported and played by simulate() on cases of VALIDATION_SEEDS (scenarios.py):
its score is the mean over cases of (cost - least-requests' cost) / |least-requests' cost|, less is better. The first
network counts as a candidate. What made the score worse can be undone: training goes on from the best network, with the
requests that follow (clusters and critic stay as they are), so that one bad step costs a rollout and not the run. Seeds
on which policies are compared later are never played.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from servegym.agents.evaluation import Player, as_json
from servegym.agents.export import network_of_tensors, tensors_of_network
from servegym.agents.objectives import find_objective
from servegym.agents.scenarios import Case, Mix
from servegym.baselines.learned import set_network_policy
from servegym.baselines.simulate import simulate
from servegym.simulator.policy import Policy, find_policy

REFERENCE = "least-requests"
FAILED = float("inf")  # score of a policy with which a run cannot be finished
Tensors = dict[str, np.ndarray]


class Validation:
    """Plays policies on a mix's validation cases, and at crowded loads on a fleet twice as large as any trained on."""

    def __init__(self, mix: Mix, objective: str) -> None:
        self.objective = find_objective(objective)
        larger = mix.validation_cases(loads=(0.97, 1.03), instances=(2 * max(mix.instances),))
        self.cases: list[Case] = [*mix.validation_cases(), *larger]
        self._player = Player()
        self.reference = self._costs(Player(), find_policy("dispatch", REFERENCE))

    def costs(self, tensors: Tensors) -> np.ndarray:
        """Return what a network costs in each case, float64[cases]; NaN for a run that fails."""
        return self._costs(self._player, set_network_policy(tensors))

    def costs_of_system(self, system: str) -> np.ndarray:
        """Return what a system costs in each case, float64[cases]."""
        results = (simulate(c.trace(), c.config(), system, seed=c.seed) for c in self.cases)
        return np.array([self.objective.cost(result) for result in results])

    def score(self, costs: np.ndarray) -> float:
        """Return the mean difference from the reference, as a share of it."""
        if not np.isfinite(costs).all():
            return FAILED
        return float(np.mean((costs - self.reference) / np.abs(self.reference)))

    def report(self, tensors: Tensors) -> dict[str, Any]:
        """Return what a network does in all cases, for a card."""
        costs = self.costs(tensors)
        rows = [
            asdict(case) | {REFERENCE: as_json(before), "learned": as_json(cost)}
            for case, before, cost in zip(self.cases, self.reference, costs, strict=True)
        ]
        return {"cost": "what is minimised", "score": as_json(self.score(costs)), "cases": rows}

    def _costs(self, player: Player, policy: Policy) -> np.ndarray:
        costs = []
        for case in self.cases:
            try:
                costs.append(self.objective.cost(player.play(policy, case)))
            except RuntimeError:  # of the engine: no progress
                costs.append(np.nan)
        return np.array(costs)


class Selection(BaseCallback):
    """Validates before the first rollout, then every so many decisions, and keeps the tensors with the least score.

    on_validated: called after each validation. undo: whether a network that is worse gives way to the best.
    best_tensors is None before the first validation.
    """

    def __init__(
        self,
        validation: Validation,
        every: int,
        on_validated: Callable[[], None],
        undo: bool,
    ):
        super().__init__()
        self.validation, self.every, self.on_validated = validation, every, on_validated
        self.undo = undo
        self.best_score, self.last_score = FAILED, FAILED
        self.best_tensors: Tensors | None = None
        self._next = 0

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self.validate()

    def _on_step(self) -> bool:
        return True

    def restore(self, tensors: Tensors, score: float, done: int) -> None:
        """Take up what was best after so many decisions, which were validated."""
        self.best_tensors, self.best_score, self._next = tensors, score, done + self.every

    def validate(self) -> None:
        """Play the network as it is now; keep it if it is the best so far."""
        network: Any = self.model.policy
        tensors = tensors_of_network(network.actor)
        self.last_score = self.validation.score(self.validation.costs(tensors))
        if self.best_tensors is None or self.last_score < self.best_score:
            self.best_score, self.best_tensors = self.last_score, tensors
        elif self.undo and self.last_score > self.best_score:
            network.actor.load_state_dict(network_of_tensors(self.best_tensors).state_dict())
            network.optimizer.state.clear()  # the actor's averages led there; the critic's build up again
        self._next = self.num_timesteps + self.every
        self.logger.record("validation/score", self.last_score)
        self.logger.record("validation/best", self.best_score)
        # Now: by the next dump another rollout has been played.
        self.logger.dump(self.num_timesteps)
        self.on_validated()
