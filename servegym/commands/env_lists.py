"""The list of environments: as records for JSON, as text for people. They are made once each, with their defaults."""

from typing import Any

Record = dict[str, Any]

STEPS = {
    "Dispatch": "a request arrives: its instance",
    "Admission": "a request arrives, or is held: accept, hold or reject it",
    "Ordering": "some queue's first request can go: which queue's goes",
    "Serve": "some queue's first request can go: which, and to which instance, or wait",
    "Migration": "a control tick: from which instance to which a request moves, or nothing",
    "Scaling": "a control tick: drain an instance, keep the fleet, or add one",
    "Headroom": "a control tick: the peak and decay of headroom",
}


def env_records() -> list[Record]:
    """Return every environment with one step, spaces and reward of the default arguments; M instances, K queues."""
    import gymnasium

    from servegym.envs.registration import env_ids

    return [env_record(env_id, gymnasium.make(env_id).unwrapped) for env_id in env_ids()]


def env_record(env_id: str, env: Any) -> Record:
    """Return what there is to know of an environment; shapes by part of the observation."""
    kind = env_id.partition("/")[2].partition("-")[0]
    return {
        "name": env_id,
        "step": STEPS[kind],
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
