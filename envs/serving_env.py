"""ServingEnv: what the seven environments have in common; each adds its docstring and its kind.

One step is one decision of the agent. Everything else of the cluster is the config's and the background system's. The
kernels (episode.py) are those of the vector environment.
"""

from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from servegym.envs.actions import check_action
from servegym.envs.batch import Batch
from servegym.envs.options import Arguments, check_options
from servegym.envs.rendering.renderer import MODES, Renderer
from servegym.envs.spaces import MASK, action_space, observation_space
from servegym.simulator.result import Result
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace

Observation = dict[str, np.ndarray] | np.ndarray


class ServingEnv(gymnasium.Env):
    """A serving cluster, paused at every decision that the agent owns (arguments: options.Arguments, and these).

    flatten: observations are one Box, not a Dict. mask_in_observation: a key `action_mask` among them. strict: a
    masked action raises ValueError; else the fallback acts, and info["illegal_action"] is True.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(MODES), "render_fps": 10}  # pyright: ignore
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        flatten: bool = False,
        mask_in_observation: bool = False,
        strict: bool = False,
        render_mode: str | None = None,
        **arguments: Unpack[Arguments],
    ) -> None:
        check_modes(flatten, mask_in_observation, render_mode)
        self.options = check_options(self.kind, arguments)
        self.is_flat, self.shows_mask, self.is_strict = flatten, mask_in_observation, strict
        self.render_mode = render_mode
        self.action_space = action_space(self.options)
        self.observation_space = observation_space(self.options, flatten, mask_in_observation)
        self.batch = Batch(self.options, 1)
        self._seed, self._episode = 0, -1
        self._renderer: Renderer | None = None

    @property
    def simulation(self) -> Simulation:
        """The simulation of the present episode. Look at it; whoever changes it changes the episode."""
        self._require_reset()
        return self.batch.simulation()

    @property
    def trace(self) -> Trace:
        """What the present episode plays."""
        return self.simulation.trace

    @property
    def episode_seed(self) -> int:
        """The seed of the present episode's simulation: simulate(env.trace, seed=env.episode_seed, ...)."""
        self._require_reset()
        return self.batch.episode_seeds[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: the first of a seed, else the next one; run to its first decision.

        Episode k of seed s is drawn from SeedSequence(s, spawn_key=(k,)).
        """
        super().reset(seed=seed)
        if options:
            raise ValueError(f"options = {options}; reset takes none")
        if seed is not None or self._episode < 0:
            self._seed = int(self.np_random_seed) if seed is None else seed
            self._episode = 0
        else:
            self._episode += 1
        self.batch.begin(0, np.random.SeedSequence(self._seed, spawn_key=(self._episode,)))
        self.batch.play()
        self._show()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take the action, run to the next decision or the end; ValueError for what is no action, nothing changed."""
        self._require_reset()
        if self.batch.is_ended(0):
            raise ResetNeeded("the episode is over; call reset()")
        self.batch.answer(0, check_action(self.action_space, action), self.is_strict)
        self.batch.play()
        self._show()
        episode = self.batch.episodes[0]
        return (
            self._observation(),
            float(episode["reward"]),
            bool(episode["terminated"]),
            bool(episode["truncated"]),
            self._info(),
        )

    def action_masks(self) -> np.ndarray:
        """Return bool[A]: which actions are legal now; all True when the episode is over."""
        return self.batch.table.masks[0].astype(bool)

    def result(self) -> Result:
        """Return what the requests of the episode got up to now, as a copy."""
        self._require_reset()
        return self.batch.result(0, self.spec.id if self.spec else self.kind)

    def snapshot(self) -> tuple[Batch, int, int]:
        """Return a copy of the episode as it stands, to go back to with `restore`."""
        self._require_reset()
        return self.batch.copy(), self._seed, self._episode

    def restore(self, snapshot: tuple[Batch, int, int]) -> tuple[Observation, dict[str, Any]]:
        """Go back to a snapshot, which stays as it is; return its observation and info."""
        batch, seed, episode = snapshot
        for name in ("observations", "masks"):
            mine, other = getattr(self.batch.table, name).shape, getattr(batch.table, name).shape
            if mine != other:
                raise ValueError(f"snapshot: {name} have shape {other[1:]}; expected {mine[1:]}")
        self.batch, self._seed, self._episode = batch.copy(), seed, episode
        return self._observation(), self._info()

    def render(self) -> Any:
        """Return the present picture: text (ansi), uint8[H, W, 3] (rgb_array); None for human."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() without render_mode; give it to gymnasium.make")
            return None
        self._require_reset()
        return self._picture()

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_renderer": None}  # pictures belong to a process

    def _require_reset(self) -> None:
        if self._episode < 0:
            raise ResetNeeded("call reset() first")

    def _observation(self) -> Observation:
        flat = self.batch.table.observations[0].copy()
        if self.is_flat:
            return flat
        parts = self.batch.split(flat)
        return parts | {MASK: self.batch.table.masks[0].copy()} if self.shows_mask else parts

    def _info(self) -> dict[str, Any]:
        return self.batch.info(0) | {MASK: self.batch.table.masks[0].copy()}

    def _show(self) -> None:
        if self.render_mode == "human":
            self._picture()

    def _picture(self) -> Any:
        if self._renderer is None:
            self._renderer = Renderer(self.render_mode)
        return self._renderer.render(self.simulation, **self.batch.facts(0))


def check_modes(flatten: bool, mask_in_observation: bool, render_mode: str | None) -> None:
    """ValueError for a combination that cannot be shown."""
    if flatten and mask_in_observation:
        raise ValueError("flatten and mask_in_observation exclude each other: a Box has no keys")
    if render_mode is not None and render_mode not in MODES:
        raise ValueError(f"render_mode = {render_mode!r}; must be one of {', '.join(MODES)}")
