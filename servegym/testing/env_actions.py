"""Actions of an environment: what is none raises and changes nothing, what is masked falls back and is counted."""

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from servegym.testing.playing import is_same, legal_action, masks, present, serving

NAN, INF = float("nan"), float("inf")


def malformed_actions(space: gymnasium.Space) -> Iterator[Any]:
    """Yield what is no action: no number, not whole, of a wrong shape or type, out of range."""
    yield from (None, "0", NAN, INF, {}, object())
    if isinstance(space, gymnasium.spaces.Discrete):
        n = int(space.n)
        yield from (0.0, 0.5, 2.5, -1, n, 2**63, 2**70, -(2**70), 1j, True, False)
        yield from ([0], [[0]], [], [0, 0], np.array([0]), np.zeros((1, 1), np.int64))
        yield from (np.float32(0), np.float64(NAN), np.bool_(True), np.array(True), np.array(0.0))
        yield from (np.int64(n), np.array(n), np.uint64(2**64 - 1))
        return
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = space.low, space.high
    for bad in (NAN, INF, -INF):
        yield np.array([low[0], bad], np.float32)
    yield from (low - 1, high + 1, np.array([high[0] * 1.001, low[1]]))
    yield from (0, low[:1], np.stack([low, low]), [*low, 0.0], [True, True], low > 1, ["0", "0"])


def check_malformed(env: gymnasium.Env) -> None:
    """What is no action raises ValueError and changes nothing."""
    before = present(env)
    for action in malformed_actions(env.action_space):
        try:
            env.step(action)
        except ValueError:
            assert present(env) == before, (
                f"step({action!r}) raises ValueError, and changes the state"
            )
        except Exception as error:
            raise AssertionError(
                f"step({action!r}) raises {error!r}; expected ValueError"
            ) from error
        else:
            raise AssertionError(f"step({action!r}) is taken; expected ValueError")


def check_forms(env: gymnasium.Env, rng: np.random.Generator) -> None:
    """An action does the same as int, NumPy's integers, 0-d array; a Box's as list and in float64."""
    action = legal_action(env, rng)
    if isinstance(env.action_space, gymnasium.spaces.Box):
        forms = [action.tolist(), action.astype(np.float64), tuple(action)]
    else:
        forms = [np.int64(action), np.array(action), np.int32(action), np.uint16(action)]
    expected = copy.deepcopy(env).step(action)
    for form in forms:
        found = copy.deepcopy(env).step(form)
        assert is_same(found, expected), f"step({form!r}) differs from step({action!r})"


def check_masked(env: gymnasium.Env, rng: np.random.Generator) -> bool:
    """A masked action acts as a legal one and is counted; strict, it raises. False if none is masked."""
    mask = masks(env)
    if mask.all():
        return False
    action = int(rng.choice(np.flatnonzero(~mask)))
    lenient, strict = copy.deepcopy(env), copy.deepcopy(env)
    serving(lenient).is_strict, serving(strict).is_strict = False, True
    before = present(strict)
    try:
        strict.step(action)
    except ValueError:
        assert present(strict) == before, f"strict: step({action}) raises, and changes the state"
    else:
        raise AssertionError(f"strict: step({action}) is masked, and taken")
    n_illegal = int(serving(lenient).batch.episodes["n_illegal"][0])
    *found, info = lenient.step(action)
    counted = int(serving(lenient).batch.episodes["n_illegal"][0]) - n_illegal
    assert info["illegal_action"] is True, f"step({action}) is masked, and info does not say so"
    assert counted == 1, f"step({action}) is masked, and counted {counted} times"
    for legal in np.flatnonzero(mask):
        *other, other_info = copy.deepcopy(env).step(int(legal))
        assert other_info["illegal_action"] is False, f"step({legal}) is legal, and info denies it"
        if is_same((other, other_info | {"illegal_action": True}), (found, info)):
            return True
    raise AssertionError(
        f"step({action}) is masked, and acts as none of the legal {np.flatnonzero(mask)}"
    )
