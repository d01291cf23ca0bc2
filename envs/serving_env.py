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
from servegym.envs.docstring import compose
from servegym.envs.options import Arguments, Options, check_options
from servegym.envs.rendering.renderer import MODES, Renderer
from servegym.envs.spaces import MASK, action_space, observation_space
from servegym.simulator.result import Result
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace

# The options in which an episode and the environment that plays it on must agree.
SAME_IN_FORKS = ("kind", "config", "horizon_s", "reward", "slo", "features", "most_pairs")
Observation = dict[str, np.ndarray] | np.ndarray


class ServingEnv(gymnasium.Env):
    """What the seven environments have in common: a serving cluster, paused at every decision that the agent owns.

    The sections below stand in the docstring of each environment, behind what it says itself (docstring.py).

    ## Description

    A trace of requests arrives at a cluster of LLM serving instances, simulated to iterations and KV blocks. The run
    stops at each decision of the agent and goes on with the answer; `system` and `cluster` take all others. The
    engine is that of `servegym.simulate`, so an episode can be played again natively, to the same picosecond. M:
    instances, absent ones included (`max_instances`); K: queues at the gateway, one a tier. A tour is in
    docs/environments.md.

    ## Observation Space

    A `Dict` of vectors, `Box(0, 10, (n,), float32)`: `cluster`, `instances`, `queues` and `request`, in this order;
    `observation["instances"].reshape(M, F)` has a row an instance. A value is the quantity in its unit, divided by a
    scale and clipped into [0, 10]. It is what a router can see: metrics as the instances last reported them
    (`metrics_interval_s`), predicted lengths. What depends on a request is 0 where the decision is about no single
    one, and all of `request` is then 0. `flatten=True`: one Box, the parts one after the other.
    `mask_in_observation=True`: one key more, `action_mask`, `MultiBinary`. `features` chooses columns.

    ## Rewards

    A reward is what a term changed by since the last decision. `reward` names the term; info["terms"] has all four.
    In seconds, of the requests that have arrived by now, t:

    | Term               | Sum since the episode began                                                                 |
    | ------------------ | ------------------------------------------------------------------------------------------- |
    | `latency`          | - sum of (min(end, t) - arrival), and - penalty of each rejected, failed or cancelled one   |
    | `weighted_latency` | the same, each request times 2^-tier                                                        |
    | `slo`              | for each request that ended: + 2^-tier if it met its SLO, else - 2^-tier                    |
    | `ttft`             | - sum of (min(first token or end, t) - arrival), and - penalty of one that streamed nothing |

    Rewards of `latency` add up to `-result().total_latency_s`, undiscounted. SLO of tier p: TTFT <= (1 + p) *
    `ttft_s` and TPOT <= (1 + p) * `tpot_s`. Penalty: the config's `reject_penalty_s`, else the longest E2E that meets
    the SLO, ttft_s + tpot_s * (output_tokens - 1). When an episode ends, `slo` also charges unfinished requests that
    are overdue.

    The first step also pays what accrued before the first decision; the last one all that accrues until the end.

    ## Starting State

    An empty cluster at time 0 and a trace of `episode_requests` arrivals. Episode k of seed s is drawn from
    `SeedSequence(s, spawn_key=(k,))`: `reset(seed=s)` begins episode 0, `reset()` the next. `fixed=True` plays the
    trace of episode 0 each time. `reset` runs to the first decision. If none ever comes, the first step ends the
    episode.

    ## Episode End

    - Termination: every request has finished, or was rejected, failed or cancelled.
    - Truncation: `horizon_s` is reached with requests in flight or yet to come, or no instance can ever take those
      that are left. They stay unfinished.

    ## Information

    | Key              | Value                                                                                    |
    | ---------------- | ---------------------------------------------------------------------------------------- |
    | `action_mask`    | int8 array, 1: legal; never all 0; all 1 when the episode is over                        |
    | `elapsed_s`      | s since the last decision, at the first step since 0; 0: asked again at the same instant |
    | `illegal_action` | True if the action was masked and the fallback acted                                     |
    | `terms`          | what each reward term changed by                                                         |

    An action out of range, not whole or not a number raises `ValueError`, and nothing has changed. A masked one is
    replaced, or raises `ValueError` with `strict=True`.

    ## Arguments

    All are keywords of `gymnasium.make`. Names, numbers, lists and dicts survive `EnvSpec.to_json`, objects do not.

    | Argument              | Default            | What it is                                                         |
    | --------------------- | ------------------ | ------------------------------------------------------------------ |
    | `workload`            | `"azure-conv"`     | a workload's name or file, a trace's file, a `Workload`, a `Trace` |
    | `load`                | `None`             | of what is sustained; None, or a trace: as recorded; left out: 0.95 |
    | `rate_per_s`          | `None`             | the mean arrival rate instead, requests/s                          |
    | `arrivals`            | `None`             | a workload's process: "poisson" (None), "fitted", "gamma:cv=3"     |
    | `tier_mix`            | `None`             | draws tiers: a mix by name, or shares by tier (1)                  |
    | `fixed`               | `False`            | every episode of a seed plays the trace of its first               |
    | `episode_requests`    | `2000`             | arrivals of an episode                                             |
    | `horizon_s`           | `600.0`            | when an episode is cut, s; None: never                             |
    | `cluster`             | `None`             | a `ClusterConfig`, or a dict of its fields and "scenario" (1)      |
    | `system`              | `"least-requests"` | who takes the decisions that are not the agent's; Headroom: n-tier |
    | `reward`              | `None`             | a term of Rewards; None: "latency", for Admission "slo"            |
    | `slo`                 | `None`             | limits of tier 0: {"ttft_s": 1.0, "tpot_s": 0.1} if None           |
    | `features`            | `None`             | {part: names of columns}; a part that is not named, or None: all   |
    | `oracle`              | `False`            | predicted lengths are the true ones                                |
    | `flatten`             | `False`            | observations are one Box                                           |
    | `mask_in_observation` | `False`            | observations have a key `action_mask`                              |
    | `strict`              | `False`            | a masked action raises `ValueError`                                |
    | `render_mode`         | `None`             | "ansi", "rgb_array" or "human"                                     |

    (1) Without both of these, Ordering, Serve and Headroom have 4 tiers in the mix "enterprise": Ordering and Serve
    with `max_num_seqs=32` and a load of 1.05, so that requests wait at the gateway, Headroom in the scenario "tight".

    ## Vectorized environment

    `gymnasium.make_vec(id, num_envs=N)` steps N clusters in one compiled loop. Sub-environment i of seed s is this
    environment with seed s + i, bit for bit. More arguments: `autoreset_mode` ("NextStep", "SameStep", "Disabled")
    and `record` (keeps the Results of episodes that ended, for `results()`).

    ## References

    - docs/engine.md: the simulator to the letter.
    - docs/environments.md: how to train, seed, fork and render.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(MODES), "render_fps": 10}  # pyright: ignore
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the docstring of one of our environments say all that there is to know."""
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls) and cls.__doc__ and ServingEnv.__doc__:
            cls.__doc__ = compose(cls.__doc__, ServingEnv.__doc__)

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
        """Go back to a snapshot, which stays as it is; return its observation and info.

        It may be another environment's, of the same kind and settings; ValueError names what differs.
        """
        batch, seed, episode = snapshot
        if batch.options is not self.batch.options:
            _check_same(self.batch.options, batch.options)
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
            self._renderer = Renderer(self.render_mode or "ansi")
        return self._renderer.render(self.simulation, **self.batch.facts(0))


def _check_same(mine: Options, other: Options) -> None:
    """ValueError for a snapshot of an environment that is another one."""
    for name in SAME_IN_FORKS:
        if getattr(mine, name) != getattr(other, name):
            raise ValueError(
                f"snapshot: {name} = {getattr(other, name)!r}; expected {getattr(mine, name)!r}"
            )


def check_modes(flatten: bool, mask_in_observation: bool, render_mode: str | None) -> None:
    """ValueError for a combination that cannot be shown."""
    if flatten and mask_in_observation:
        raise ValueError("flatten and mask_in_observation exclude each other: a Box has no keys")
    if render_mode is not None and render_mode not in MODES:
        raise ValueError(f"render_mode = {render_mode!r}; must be one of {', '.join(MODES)}")
