"""The list of environments: as records for JSON, as text for people. Each is made once, with its default arguments."""

import inspect
from typing import Any

Record = dict[str, Any]


def env_records() -> list[Record]:
    """Return every environment with one step, spaces and reward of the default arguments; M instances, K queues."""
    import gymnasium

    from servegym.envs.registration import env_ids

    return [env_record(env_id, gymnasium.make(env_id).unwrapped) for env_id in env_ids()]


def env_record(env_id: str, env: Any) -> Record:
    """Return what there is to know of an environment; shapes by part of the observation."""
    summary = (inspect.getdoc(type(env)) or "").partition("\n")[0]
    return {
        "name": env_id,
        "step": summary.partition(": ")[2],
        "action_space": str(env.action_space).replace("\n", " "),
        "observation_shape": {
            part: list(space.shape) for part, space in env.observation_space.items()
        },
        "reward": env.options.reward,
    }


def envs_text() -> str:
    """Return the environments, each with its step and, below it, its spaces and reward."""
    lines = []
    for record in env_records():
        shapes = ", ".join(f"{p} {tuple(s)}" for p, s in record["observation_shape"].items())
        lines += [
            f"{record['name']:<22}  {record['step']}",
            f"    by default {record['action_space']}; sees {shapes}; reward {record['reward']}",
        ]
    return "\n".join(lines)
