"""The environments' ids, registered with gymnasium by string entry points: nothing is imported until one is made."""

import gymnasium

KINDS = ("Dispatch", "Admission", "Ordering", "Serve", "Migration", "Scaling", "Headroom")
NAMESPACE, VERSION = "servegym", 0


def env_ids() -> list[str]:
    """Return the ids of all environments."""
    return [f"{NAMESPACE}/{kind}-v{VERSION}" for kind in KINDS]


def register_envs() -> None:
    """Register every environment, single and vector."""
    for kind, env_id in zip(KINDS, env_ids(), strict=True):
        home = f"servegym.envs.{kind.lower()}"
        gymnasium.register(
            id=env_id,
            entry_point=f"{home}:{kind}Env",
            vector_entry_point=f"{home}:{kind}VectorEnv",
        )
