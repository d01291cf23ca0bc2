"""SB3VecEnv: a native vector environment as Stable-Baselines3 wants it (extra `rl`).

    env = SB3VecEnv("servegym/Dispatch-v0", num_envs=256, load=0.97)
    PPO("MlpPolicy", env).learn(1_000_000)                     # MaskablePPO from sb3_contrib works, too

Observations are flat by default, which MlpPolicy takes; flatten=False gives the Dict for MultiInputPolicy. An episode
that ends is replaced at once: its info has terminal_observation, TimeLimit.truncated, and its statistics under
"episode" (r: sum of rewards, l: steps, t: seconds since the environment was made), as Monitor gives them. All other
infos are empty, since filling them takes longer than the steps.
"""

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from servegym.envs.batch import Batch
from servegym.envs.spaces import MASK
from servegym.envs.vector import ServingVectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "SB3VecEnv needs Stable-Baselines3: pip install 'servegym[rl]'"
    ) from error


class SB3VecEnv(VecEnv):
    """N sub-environments of one id, stepped by one call; keyword arguments are the environment's."""

    def __init__(
        self, env_id: str, num_envs: int = 1, *, flatten: bool = True, **kwargs: Any
    ) -> None:
        made = gymnasium.make_vec(
            env_id,
            num_envs=num_envs,
            vectorization_mode="vector_entry_point",
            autoreset_mode=AutoresetMode.SAME_STEP.value,
            flatten=flatten,
            **kwargs,
        )
        assert isinstance(made, ServingVectorEnv)
        self.vector = made
        self._actions: np.ndarray | None = None
        self._begun_s = time.monotonic()
        super().__init__(num_envs, made.single_observation_space, made.single_action_space)

    @property
    def batch(self) -> Batch:
        """The sub-environments as the kernels have them."""
        return self.vector.batch

    def reset(self) -> Any:
        """Begin an episode everywhere; the first with the seeds that `seed` has set."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        observations, infos = self.vector.reset(seed=seeds)
        self.reset_infos = [{MASK: mask} for mask in infos[MASK]]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions; step_wait plays them."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Return observations, rewards float32[N], dones bool[N] and infos."""
        observations, rewards, terminated, truncated, stacked = self.vector.step(self._actions)
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            self._tell_ends(infos, dones, terminated, stacked)
        return observations, rewards.astype(np.float32), dones, infos

    def _tell_ends(
        self,
        infos: list[dict[str, Any]],
        dones: np.ndarray,
        terminated: np.ndarray,
        stacked: dict[str, Any],
    ) -> None:
        """Write into the infos of the episodes that have ended what they were (mutates infos)."""
        now_s = time.monotonic() - self._begun_s
        ended = self.vector.ended
        for e in np.flatnonzero(dones):
            infos[e] = {
                "terminal_observation": stacked["final_obs"][e],
                "TimeLimit.truncated": not terminated[e],
                "episode": {
                    "r": float(ended["total"][e]),
                    "l": int(ended["n_steps"][e]),
                    "t": round(now_s, 6),
                },
                "n_illegal": int(ended["n_illegal"][e]),
            }

    def action_masks(self) -> np.ndarray:
        """Return bool[N, A]: which actions are legal now."""
        return self.vector.action_masks()

    def close(self) -> None:
        """Close what pictures hold open."""
        self.vector.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return a frame of every sub-environment (render_mode="rgb_array")."""
        return self.vector.render() or [None] * self.num_envs

    def has_attr(self, attr_name: str) -> bool:
        """Return whether the vector environment, or this, has an attribute."""
        return hasattr(self.vector, attr_name) or attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment once for every sub-environment."""
        return [getattr(self.vector, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment; it has one for all."""
        setattr(self.vector, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """Return what the vector environment's method returns, row by row (action_masks)."""
        rows = getattr(self.vector, method_name)(*args, **kwargs)
        return [rows[e] for e in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for all: there are no single environments that could be wrapped.

        Episode statistics are there, so Monitor counts as a wrapper of each.
        """
        from stable_baselines3.common.monitor import Monitor

        indices = list(self._get_indices(indices))
        return [issubclass(wrapper_class, Monitor)] * len(indices)
