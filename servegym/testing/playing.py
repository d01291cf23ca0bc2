"""Playing an environment at random, and comparing what it showed, bit for bit.

Actions are drawn from a generator and the mask, so that a seed says all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from servegym.envs.serving_env import ServingEnv

Make = Callable[[], gymnasium.Env]
Step = tuple[Any, float, bool, bool, dict[str, Any]]  # as step() returns it


@dataclass
class Played:
    """What an environment showed from a reset on; the reset counts as a step that paid nothing."""

    steps: list[Step] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.steps[-1][2] or self.steps[-1][3])


def serving(env: gymnasium.Env) -> ServingEnv:
    """Return the serving environment inside; ValueError if there is none."""
    inner = env.unwrapped
    if not isinstance(inner, ServingEnv):
        raise ValueError(f"env = {env}; must be one of servegym's, or built on one")
    return inner


def masks(env: gymnasium.Env) -> np.ndarray:
    """Return bool[A], as MaskablePPO asks for it."""
    return env.get_wrapper_attr("action_masks")()


def legal_action(env: gymnasium.Env, rng: np.random.Generator) -> Any:
    """Return a random legal action, int or float32[2]."""
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Box):
        return rng.uniform(space.low, space.high).astype(np.float32)
    return int(rng.choice(np.flatnonzero(masks(env))))


def play(env: gymnasium.Env, seed: int | None, n_steps: int, policy_seed: int = 0) -> Played:
    """Return what an environment shows in n steps at random, or until its episode ends."""
    observation, info = env.reset(seed=seed)
    played = Played([(observation, 0.0, False, False, info)])
    return play_on(env, played, n_steps, policy_seed)


def play_on(env: gymnasium.Env, played: Played, n_steps: int, policy_seed: int = 0) -> Played:
    """Return what it shows in n more steps (mutates played)."""
    rng = np.random.default_rng([policy_seed, 28])
    for _ in range(n_steps):
        if played.is_over:
            break
        action = legal_action(env, rng)
        played.actions.append(action)
        observation, reward, terminated, truncated, info = env.step(action)
        played.steps.append((observation, float(reward), terminated, truncated, info))
    return played


def is_same(a: Any, b: Any) -> bool:
    """Return whether two trees of dicts, sequences, arrays and numbers are equal, bit for bit, types of arrays too."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(is_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        is_like = isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return is_like and a.tobytes() == b.tobytes()
    return bool(a == b)


def check_same(a: Played, b: Played, when: str) -> None:
    """AssertionError naming the first step at which two episodes differ."""
    assert len(a.steps) == len(b.steps), f"{when}: {len(a.steps)} and {len(b.steps)} steps"
    for k, (mine, other) in enumerate(zip(a.steps, b.steps, strict=True)):
        for name, x, y in zip(
            ("observation", "reward", "terminated", "truncated", "info"), mine, other, strict=True
        ):
            assert is_same(x, y), f"{when}: {name} of step {k} differs: {x} and {y}"


def present(env: gymnasium.Env) -> list[bytes]:
    """Return the whole present of an environment, to see whether it changes."""
    inner = serving(env)
    arrays = (*inner.simulation.state, *inner.batch.table)
    return [np.asarray(array).tobytes() for array in arrays]
