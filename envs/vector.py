"""ServingVectorEnv: N environments of one kind in one batch of kernels.

With seed s sub-environment i is the single environment with seed s + i, bit for bit.

Episodes are drawn in Python when one begins, all else is compiled. What is returned are copies.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from servegym.envs.actions import check_actions
from servegym.envs.batch import Batch
from servegym.envs.episode import (
    ELAPSED,
    FIRST_TERM,
    ILLEGAL,
    REWARD,
    TERMINATED,
    TERMS,
    TRUNCATED,
)
from servegym.envs.options import Arguments, check_options
from servegym.envs.rendering.renderer import Renderer
from servegym.envs.serving_env import Observation, check_modes
from servegym.envs.spaces import MASK, action_space, observation_space
from servegym.simulator.result import Result


class ServingVectorEnv(VectorEnv):
    """N serving clusters side by side (arguments as for the single environment, and these).

    autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED, as gymnasium's enum or its value ("NextStep"). record: keep the
    Result of every episode that ends, for `results()`.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012
    kind: ClassVar[str]

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        record: bool = False,
        flatten: bool = False,
        mask_in_observation: bool = False,
        strict: bool = False,
        render_mode: str | None = None,
        **arguments: Unpack[Arguments],
    ) -> None:
        if not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs = {num_envs!r}; must be a whole number >= 1")
        check_modes(flatten, mask_in_observation, render_mode)
        self.options = check_options(self.kind, arguments)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = self.metadata | {"autoreset_mode": self.autoreset_mode}
        self.is_flat, self.shows_mask, self.is_strict = flatten, mask_in_observation, strict
        self.render_mode = render_mode
        self.single_action_space = action_space(self.options)
        self.single_observation_space = observation_space(
            self.options, flatten, mask_in_observation
        )
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.batch = Batch(self.options, num_envs)
        self._seeds: list[int] = []
        self._episodes = np.full(num_envs, -1)
        self._all = np.ones(num_envs, bool)
        self._ended = np.zeros(num_envs, bool)  # by the last step
        self.ended = (
            self.batch.episodes.copy()
        )  # EPISODE[N] when any last did: total, n_steps, n_illegal
        self._is_recording, self._results = record, []
        self._renderers: list[Renderer] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where options["reset_mask"] (bool[N]) says.

        seed: s for sub-environments s, s + 1, ..., or one each.
        """
        chosen = self._chosen(options)
        self._reseed(seed, chosen)
        for e in np.flatnonzero(chosen):
            self._begin(int(e))
        self.batch.play()
        self._ended[chosen] = False
        return self._observations(), self._infos(chosen, self.batch.table.outcomes.copy())

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action everywhere; see gymnasium's AutoresetMode for what happens to episodes that have ended."""
        if not self._seeds:
            raise ResetNeeded("call reset() first")
        checked = check_actions(self.single_action_space, actions, self.num_envs)
        has_ended = bool(self._ended.any())
        if has_ended and self.autoreset_mode == AutoresetMode.DISABLED:
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(
                f"episodes of {ended} are over; reset(options={{'reset_mask': ...}}) begins others"
            )
        self.batch.answer_all(checked, ~self._ended, self.is_strict)
        if has_ended:
            for e in np.flatnonzero(self._ended):
                self._begin(int(e))
        self.batch.play(is_answered=True)
        outcomes = self.batch.table.outcomes.copy()
        terminated, truncated = outcomes[TERMINATED] != 0, outcomes[TRUNCATED] != 0
        self._ended = terminated | truncated
        if self._ended.any():
            self.ended = self.batch.episodes.copy()
            self._keep_results()
            if self.autoreset_mode == AutoresetMode.SAME_STEP:
                infos = self._replace_ended(outcomes)
                return self._observations(), outcomes[REWARD], terminated, truncated, infos
        infos = self._infos(self._all.copy(), outcomes)
        return self._observations(), outcomes[REWARD], terminated, truncated, infos

    def action_masks(self) -> np.ndarray:
        """Return bool[N, A]: which actions are legal now."""
        return self.batch.table.masks.astype(bool)

    def results(self) -> list[Result]:
        """Return the Results of the episodes that have ended, in order; ValueError without record=True."""
        if not self._is_recording:
            raise ValueError(
                "record = False; make the environment with record=True to keep results"
            )
        return list(self._results)

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every sub-environment, text or uint8[H, W, 3]."""
        if self.render_mode is None:
            return None
        if not self._renderers:
            self._renderers = [Renderer(self.render_mode) for _ in range(self.num_envs)]
        return tuple(
            each.render(self.batch.simulation(e), **self.batch.facts(e))
            for e, each in enumerate(self._renderers)
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Close what pictures hold open."""
        for renderer in self._renderers:
            renderer.close()
        self._renderers = []

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_renderers": []}

    def _chosen(self, options: dict[str, Any] | None) -> np.ndarray:
        """Return bool[N]: who is reset."""
        if not options:
            return self._all.copy()
        if set(options) != {"reset_mask"}:
            raise ValueError(f"options = {options}; reset takes reset_mask, bool[{self.num_envs}]")
        mask = np.asarray(options["reset_mask"])
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"reset_mask = {mask}; must be bool[{self.num_envs}], one of them True"
            )
        if not self._seeds and not mask.all():
            raise ValueError("reset_mask: the first reset is everybody's")
        return mask

    def _reseed(self, seed: int | Sequence[int | None] | None, chosen: np.ndarray) -> None:
        if seed is None and self._seeds:
            return
        if seed is None or isinstance(seed, int | np.integer):
            base = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)
            if base < 0:
                raise ValueError(f"seed = {base}; must be >= 0")
            seeds: list[int | None] = [base + e for e in range(self.num_envs)]
            self._np_random_seed = base
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise ValueError(f"seed has {len(seeds)} values; expected {self.num_envs}")
        for e, each in enumerate(seeds):
            if each is not None and (not isinstance(each, int | np.integer) or each < 0):
                raise ValueError(f"seed[{e}] = {each!r}; must be a whole number >= 0, or None")
        if not self._seeds:
            self._seeds = np.random.SeedSequence().generate_state(self.num_envs).tolist()
        for e, each in enumerate(seeds):
            if each is not None and chosen[e]:
                self._seeds[e], self._episodes[e] = int(each), -1

    def _begin(self, e: int) -> None:
        self._episodes[e] += 1
        key = (int(self._episodes[e]),)
        self.batch.begin(e, np.random.SeedSequence(self._seeds[e], spawn_key=key))

    def _keep_results(self) -> None:
        if self._is_recording:
            for e in np.flatnonzero(self._ended):
                name = self.spec.id if self.spec else self.kind
                self._results.append(self.batch.result(int(e), name))

    def _replace_ended(self, outcomes: np.ndarray) -> dict[str, Any]:
        """Begin new episodes where one has ended (SAME_STEP); what was last seen of those is in the infos."""
        ended, last, infos = self._ended, self._observations(), {}
        last_infos = self._infos(ended, outcomes)
        for e in np.flatnonzero(ended):
            self._begin(int(e))
        self.batch.play()
        infos = self._infos(self._all.copy(), self.batch.table.outcomes.copy())
        final = np.full(self.num_envs, None, object)
        for e in np.flatnonzero(ended):
            final[e] = {k: v[e] for k, v in last.items()} if isinstance(last, dict) else last[e]
        infos |= {"final_obs": final, "_final_obs": ended.copy()}
        infos |= {"final_info": last_infos, "_final_info": ended.copy()}
        self._ended = np.zeros(self.num_envs, bool)
        return infos

    def _observations(self) -> Observation:
        flat = self.batch.table.observations.copy()
        if self.is_flat:
            return flat
        parts = self.batch.split(flat)
        return parts | {MASK: self.batch.table.masks.copy()} if self.shows_mask else parts

    def _infos(self, who: np.ndarray, outcomes: np.ndarray) -> dict[str, Any]:
        """Return the infos of some sub-environments, as gymnasium stacks them: every key with its `_key`, bool[N].

        outcomes: a copy, which becomes theirs.
        """
        if not who.all():
            outcomes = outcomes * who
        terms = dict(zip(TERMS, outcomes[FIRST_TERM:], strict=True))
        infos = {
            "elapsed_s": outcomes[ELAPSED],
            "illegal_action": outcomes[ILLEGAL] != 0,
            "terms": terms | {f"_{name}": who for name in TERMS},
            MASK: self.batch.table.masks.copy(),
        }
        return infos | {f"_{name}": who for name in infos}
