"""help() of an environment is its full page: every section, feature, argument and default, none of them stale."""

import importlib
import pydoc

import pytest

from servegym.envs.docstring import HEADINGS, TABLES, compose, feature_table
from servegym.envs.episode import TERMS
from servegym.envs.options import DEFAULTS, KINDS, ONLY_FOR, check_options
from servegym.envs.serving_env import ServingEnv

OWN_DEFAULTS = {"strict": False, "flatten": False, "mask_in_observation": False}


def env_class(kind: str) -> type[ServingEnv]:
    """Return the environment of a kind."""
    return getattr(importlib.import_module(f"servegym.envs.{kind}"), f"{kind.capitalize()}Env")


def page(kind: str) -> str:
    """Return its docstring."""
    text = env_class(kind).__doc__
    assert text is not None
    return text


def row(text: str, name: str) -> list[str]:
    """Return the cells of the one table row that begins with `name`."""
    [line] = [line for line in text.splitlines() if line.startswith(f"| `{name}` ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_stands_once_and_in_order(kind: str):
    found = [line[3:] for line in page(kind).splitlines() if line.startswith("## ")]
    assert found == list(HEADINGS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_feature_reward_and_argument_is_described(kind: str):
    text = page(kind)
    assert not [part for part, (_, table) in TABLES.items() if feature_table(table) not in text]
    for term in TERMS:
        assert row(text.partition("## Rewards")[2].partition("## Starting")[0], term)[1]
    arguments = text.partition("## Arguments")[2].partition("## Vectorized")[0]
    for name, value in (DEFAULTS | OWN_DEFAULTS).items():
        if kind not in ONLY_FOR.get(name, KINDS):
            assert f"| `{name}` " not in arguments
            continue
        if name == "fallback":
            policy = check_options(kind, {}).fallback
            assert policy is not None
            value = policy.name
        shown = f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
        assert row(arguments, name)[1] == shown, name


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_default_reward_is_named(kind: str):
    own = page(kind).partition("## Rewards\n\n")[2]
    assert own.startswith(f"By default `{check_options(kind, {}).reward}`")


def test_help_shows_the_page():
    text = pydoc.plain(pydoc.render_doc(env_class("serve")))
    assert "## Action Space" in text and "`kv_at_ends`" in text


def test_a_users_own_subclass_keeps_its_own_docstring():
    class Mine(env_class("dispatch")):
        """Mine."""

    assert Mine.__doc__ == "Mine."


def test_sections_come_in_order_the_own_text_first():
    own = "Title.\n\n## Rewards\n\nown\n\n## Description\n\nwhat"
    common = "Base.\n\n## Observation Space\n\nseen\n\n## Rewards\n\ncommon"
    text = compose(own, common)
    assert text.startswith(
        "Title.\n\n## Description\n\nwhat\n\n## Observation Space\n\nseen\n\n`cluster`"
    )
    assert text.endswith("## Rewards\n\nown\n\ncommon\n")
