"""Conformance of one environment: what every one must do, whatever its settings and whatever is done in it.

Observations are in their space, masks belong to them, what is no action raises and changes nothing, a seed says all,
rewards add up to what the table of requests says, no request is lost, copies have futures of their own.
Left out: speed, and whether anything can be learned.
"""

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from servegym.envs.spaces import MASK
from servegym.testing.conservation import check_blocks, check_conservation
from servegym.testing.env_actions import check_forms, check_malformed, check_masked
from servegym.testing.playing import (
    Make,
    Played,
    Step,
    check_same,
    is_same,
    legal_action,
    masks,
    play,
    play_on,
    serving,
)
from servegym.testing.terms import check_sums
from servegym.traces import Trace

SEEDS = (0, 1)
N_FORKS = 4  # places at which copies are tried
LOOK_EVERY = 16  # steps between looks at the whole state
START: Step = ({}, 0.0, False, False, {})  # before a step that is compared


def check_env(
    env: gymnasium.Env | str | Make,
    *,
    seeds: Sequence[int] = SEEDS,
    n_steps: int = 100_000,
    **kwargs: Any,
) -> None:
    """Check an environment in one episode a seed, at random legal actions, of n_steps at most.

    env: an id for gymnasium.make, a function that makes one (either is given kwargs), or one that is made: copies of
    it are checked. Wrappers are welcome; inside must be one of servegym's classes, or a child of one. Raises
    AssertionError that says what is wrong and how it is seen again; ValueError for what is no such environment.
    """
    if not len(seeds):
        raise ValueError("seeds = []; must be at least one")
    make = _maker(env, kwargs)
    serving(make())
    for seed in seeds:
        for check in CHECKS:
            with _explained(env, kwargs, seed, check):
                check(make, seed, n_steps)


def _maker(env: gymnasium.Env | str | Make, kwargs: dict[str, Any]) -> Make:
    if isinstance(env, str):
        return lambda: gymnasium.make(env, **kwargs)
    if not isinstance(env, gymnasium.Env):
        return lambda: env(**kwargs)
    if kwargs:
        raise ValueError(f"{', '.join(kwargs)}: the environment is made already, and takes nothing")
    return lambda: copy.deepcopy(env)


@contextmanager
def _explained(
    env: Any, kwargs: dict[str, Any], seed: int, check: Callable[..., None]
) -> Iterator[None]:
    """Turn whatever goes wrong into an AssertionError that names environment, check, seed and settings."""
    try:
        yield
    except Exception as error:
        what = (check.__doc__ or "").partition("\n")[0].rstrip(".")
        given = "".join(f", {name}={value!r}" for name, value in kwargs.items())
        name = repr(env) if isinstance(env, str) else f"{env}"
        raise AssertionError(
            f"{type(error).__name__ + ': ' if not isinstance(error, AssertionError) else ''}{error}\n"
            f"  checked: {what}\n  again: check_env({name}, seeds=[{seed}]{given})"
        ) from error


def check_order(make: Make, seed: int, n_steps: int) -> None:
    """Before the first reset and after the end a step raises ResetNeeded."""
    env = make()
    _check_refuses(env, "before the first reset")
    play(env, seed, n_steps)
    if serving(env).batch.is_ended(0):  # and not cut off by a wrapper
        _check_refuses(env, "after the end")
    env.reset()
    env.step(legal_action(env, np.random.default_rng(seed)))


def _check_refuses(env: gymnasium.Env, when: str) -> None:
    try:
        env.step(env.action_space.sample())
    except ResetNeeded:
        return
    raise AssertionError(f"step() {when} is taken; expected ResetNeeded")


def check_seeds(make: Make, seed: int, n_steps: int) -> None:
    """A seed gives the same episode again; without one the next follows, again the same, another than the first."""
    first, second = make(), make()
    pair = [play(first, seed, n_steps), play(first, None, n_steps)]
    hashes = [serving(first).trace.workload_hash]
    again = [play(second, seed, n_steps)]
    hashes.append(serving(second).trace.workload_hash)
    again.append(play(second, None, n_steps))
    for mine, other, name in zip(pair, again, ("reset(seed)", "reset() after it"), strict=True):
        check_same(mine, other, f"{name} twice")
    check_same(pair[0], play(first, seed, n_steps), "reset(seed) in a used environment")
    traces = serving(first).options.traces
    is_drawn = not isinstance(traces.source, Trace) and not traces.is_fixed
    assert not is_drawn or hashes[0] != hashes[1], "reset(seed) and reset() play the same trace"


def check_observations(make: Make, seed: int, n_steps: int) -> None:
    """Observations are float32, finite and in their space; masks belong to them, and are never all False."""
    env = make()
    env.reset(seed=seed)
    for observation, *_, info in play(env, seed, n_steps).steps:
        arrays = observation.values() if isinstance(observation, dict) else [observation]
        for array in arrays:
            assert np.isfinite(array).all(), f"observation = {observation}; not finite"
        assert env.observation_space.contains(observation), (
            f"observation = {observation}; not in its space"
        )
        assert info[MASK].any(), "an all-False mask"
    _check_masks(env, seed, n_steps)


def _check_masks(env: gymnasium.Env, seed: int, n_steps: int) -> None:
    """AssertionError unless the three masks agree, and with what the observation says of the same instant."""
    inner, rng = serving(env), np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    for _ in range(n_steps):
        mask = masks(env)
        assert mask.dtype == bool and is_same(info[MASK], mask.astype(np.int8)), (
            f"info[{MASK!r}] = {info[MASK]}, action_masks() = {mask}"
        )
        if isinstance(observation, dict) and MASK in observation:
            assert is_same(observation[MASK], info[MASK]), (
                f"observation[{MASK!r}] = {observation[MASK]}"
            )
        if isinstance(observation, dict) and not inner.batch.episodes["is_over"][0]:
            _check_mask_is_observed(inner, observation, mask)
        observation, _, terminated, truncated, info = env.step(legal_action(env, rng))
        if terminated or truncated:
            break
    assert masks(env).any(), "an all-False mask at the end"


def _check_mask_is_observed(
    inner: Any, observation: dict[str, np.ndarray], mask: np.ndarray
) -> None:
    part, name = {"dispatch": ("instances", "accepts"), "ordering": ("queues", "ready")}.get(
        inner.options.kind, ("", "")
    )
    if part in observation and name in inner.options.features[part]:
        names = inner.options.features[part]
        seen = observation[part].reshape(-1, len(names))[:, names.index(name)]
        assert is_same(seen != 0, mask), f"mask = {mask}, but {part} show {name} = {seen}"


def check_actions(make: Make, seed: int, n_steps: int) -> None:
    """What is no action raises ValueError and changes nothing; what is masked falls back and is counted."""
    env = make()
    rng = np.random.default_rng(seed)
    for _ in _places(env, seed, n_steps):
        check_malformed(env)
        check_forms(env, rng)
        check_masked(env, rng)


def check_requests(make: Make, seed: int, n_steps: int) -> None:
    """No request and no KV block is lost or doubled between two decisions."""
    env = make()
    inner = serving(env)
    for k in _steps(env, seed, n_steps):
        if k % LOOK_EVERY == 0:
            check_conservation(inner.simulation)
            check_blocks(inner.simulation)
    check_conservation(inner.simulation)
    counts = inner.result().summary()
    parts = ("finished", "rejected", "failed", "cancelled", "unfinished")
    total = sum(counts[name] for name in parts)
    assert counts["offered"] == total, f"offered = {counts['offered']}; {total} by status"


def check_copies(make: Make, seed: int, n_steps: int) -> None:
    """A snapshot, a deep copy and a pickle have the same future, and none changes another's."""
    env, restored = make(), make()
    for _ in range(3):
        env.reset(seed=seed)  # from the second time on it may play in the same arrays
    restored.reset(seed=seed + 1)
    for k in _places(env, seed, n_steps):
        n = 40 if k % 2 else n_steps
        kept = serving(env).snapshot()
        mine = copy.deepcopy(env)
        for name, twin in (
            ("a deep copy", copy.deepcopy(env)),
            (
                "a pickle",
                pickle.loads(pickle.dumps(serving(env))),
            ),  # some wrappers cannot be pickled
        ):
            whole = mine if name == "a deep copy" else serving(mine)
            expected = play_on(copy.deepcopy(whole), Played([START]), n)
            check_same(expected, play_on(twin, Played([START]), n), name)
            for _ in range(2):
                twin.reset()
            again = play_on(copy.deepcopy(whole), Played([START]), n)
            check_same(expected, again, f"an environment beside {name} of it")
        found = serving(restored).restore(kept)
        assert is_same(found, serving(env).restore(kept)), "restore() shows two things"
        mine = play_on(serving(copy.deepcopy(env)), Played([START]), n)
        check_same(mine, play_on(serving(restored), Played([START]), n), "a restored snapshot")


def _steps(env: gymnasium.Env, seed: int, n_steps: int) -> Iterator[int]:
    """Play an episode; yield the number of steps so far, before each of them."""
    rng, is_over = np.random.default_rng(seed), False
    env.reset(seed=seed)
    for k in range(n_steps):
        if is_over:
            break
        yield k
        _, _, terminated, truncated, _ = env.step(legal_action(env, rng))
        is_over = terminated or truncated


def _places(env: gymnasium.Env, seed: int, n_steps: int) -> Iterator[int]:
    """Play an episode; yield at a few places of it, further and further apart, while it is not over."""
    stop = 0
    for k in _steps(env, seed, n_steps):
        if k == stop:
            yield k
            stop = 3 * stop + 2
        if k > 3**N_FORKS:
            break


CHECKS: tuple[Callable[[Make, int, int], None], ...] = (
    check_order,
    check_seeds,
    check_observations,
    check_actions,
    check_sums,
    check_requests,
    check_copies,
)
