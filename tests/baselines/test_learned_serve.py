"""Linear serving: scores by hand, one choice in two policies, waiting that ends, and the run of an environment."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from feature_reads import all_features, outlooks
from flat_profile import FLAT

import servegym
from servegym.baselines.learned import read_checkpoint, write_checkpoint
from servegym.baselines.learned.serve_linear import HEAD_TERMS, N_HEAD, N_PAIR, PAIR_TERMS
from servegym.baselines.systems import find_system
from servegym.envs.baseline_policy import BaselinePolicy, ask_dispatch, ask_queue
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import HOLD
from servegym.traces import Trace

CARD = {"decision": "serve", "architecture": "linear"}
NEVER_WAIT, RATHER_WAIT = 1e6, -1e6
BY_TIER: dict[str, Any] = {"tier_1": 1, "tier_2": 2, "tier_3": 3}
PULL: dict[str, Any] = {"queue_by": "tier", "max_local_waiting": 0}
N_PROMPT = 64  # tokens, of most requests below


def tensors(wait: float = NEVER_WAIT, **weights: float) -> dict[str, np.ndarray]:
    """Return tensors with some weights by name; urgent_NAME: what urgency times a pair's term weighs."""
    head, pair = np.zeros(N_HEAD, np.float32), np.zeros((2, N_PAIR), np.float32)
    for name, value in weights.items():
        term = name.removeprefix("urgent_")
        if name in HEAD_TERMS:
            head[HEAD_TERMS.index(name)] = value
        else:
            pair[int(term != name), PAIR_TERMS.index(term)] = value
    return {"head": head, "pair": pair, "wait": np.array([wait], np.float32)}


def checkpoint(tmp_path, name: str = "by-hand", wait: float = NEVER_WAIT, **weights: float) -> str:
    """Write a checkpoint and return the system that it is."""
    return f"learned:{write_checkpoint(tmp_path / name, tensors(wait, **weights), CARD)}"


def played(system: str, trace: Trace, **options: Any) -> Simulation:
    """Return a finished run."""
    found = find_system(system)
    config = ClusterConfig(profile=FLAT, estimator="oracle", **options)
    simulation = Simulation(trace, found.configure(config), found.policy)
    simulation.run()
    return simulation


def at_once(tiers: list[int], prompts: list[int] | None = None, outputs: int = 5) -> Trace:
    """Return requests that all come at 0."""
    n = len(tiers)
    prompts = [N_PROMPT] * n if prompts is None else prompts
    return Trace(np.zeros(n), np.array(prompts), np.full(n, outputs), tier=tiers)


def tiers_served(system: str, tiers: list[int], prompts: list[int] | None = None) -> list[int]:
    """Return tiers in the order in which one server of one seat finishes them."""
    simulation = played(system, at_once(tiers, prompts), instances=1, tiers=4, max_num_seqs=1)
    records = simulation.state.requests
    return records["tier"][np.argsort(records["finish_ps"])].tolist()


def test_the_queue_with_the_least_score_goes_first(tmp_path):
    # The first request meets an empty server before the others have come; then by score.
    tiers = [3, 0, 1, 2, 3, 0]
    assert tiers_served(checkpoint(tmp_path, **BY_TIER), tiers) == [3, 0, 0, 1, 2, 3]
    backwards: dict[str, Any] = {f"tier_{p}": -p for p in range(4)}
    assert tiers_served(checkpoint(tmp_path, **backwards), tiers) == [3, 3, 2, 1, 0, 0]


def test_a_term_of_the_head_turns_the_order(tmp_path):
    # prompt / 2,000: tier 0's head has 2,000, so 1 * 1.5 = 1.5 against tier 1's 1 + .032 * 1.5 = 1.048
    system = checkpoint(tmp_path, **BY_TIER, prompt=1.5)
    assert tiers_served(system, [3, 0, 1], [N_PROMPT, 2000, N_PROMPT]) == [3, 1, 0]
    # .5 * 1 = .5 against 1.016
    system = checkpoint(tmp_path, **BY_TIER, prompt=0.5)
    assert tiers_served(system, [3, 0, 1], [N_PROMPT, 2000, N_PROMPT]) == [3, 0, 1]


def test_a_head_that_is_late_waits_for_those_that_are_not(tmp_path):
    # The server takes 10 ms a token: the first request leaves at 1.5 s. Tier 0's limit, 1 s, is over; tier 1's is not.
    trace = Trace(np.zeros(3), np.full(3, N_PROMPT), np.array([150, 5, 5]), tier=[3, 0, 1])
    for late, order in ((0.0, [3, 0, 1]), (2.0, [3, 1, 0])):
        system = checkpoint(tmp_path, **BY_TIER, late=late)
        options = {"instances": 1, "tiers": 4, "max_num_seqs": 1}
        records = played(system, trace, **options).state.requests
        assert records["tier"][np.argsort(records["finish_ps"])].tolist() == order


def test_kv_is_kept_for_the_urgent(tmp_path):
    """Waiting: with .9 of the KV taken a request of tier 3 waits, one of tier 0 does not."""
    # 100 blocks of 16; the first takes 80 + 1 + 9 at most. With a second of 160 tokens, 10 blocks: above .9, so
    # kv_full > .6. Tier 3 scores 4 * (.6 - .125 * .6) > 1.5 and waits; tier 0 scores 4 * (.6 - .6) = 0.
    weights: dict[str, Any] = {"kv_full": 4.0, "urgent_kv_full": -4.0}
    system = checkpoint(tmp_path, wait=1.5, **weights)
    for tier, waits in ((0, False), (3, True)):
        trace = Trace([0.0, 0.1], np.array([1295, 160]), np.array([100, 5]), tier=[0, tier])
        options = {"instances": 1, "tiers": 4, "kv_blocks": 100}
        records = played(system, trace, **options).state.requests
        first_end_ps, admitted_ps = records["finish_ps"][0], records["admitted_ps"][1]
        assert (admitted_ps >= first_end_ps) == waits


def random_tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return weights at random, that wait now and then."""
    return {
        "head": rng.normal(size=N_HEAD).astype(np.float32),
        "pair": rng.normal(size=(2, N_PAIR)).astype(np.float32),
        "wait": rng.normal(0.0, 2.0, 1).astype(np.float32),
    }


def expected_scores(simulation: Simulation, given: dict[str, np.ndarray]) -> dict[Any, float]:
    """Return the score of every legal pair, by (queue, instance), and of waiting: the formula once more, in numpy."""
    records, now_ps = simulation.state.requests, int(simulation.state.shared[0]["now_ps"])
    budget, seen = simulation.config.max_num_batched_tokens, outlooks(simulation)
    scores: dict[Any, float] = {"wait": float(given["wait"][0])}
    for q, queue in enumerate(simulation.state.queues[:-1]):
        if queue["n_waiting"] == 0:
            continue
        r = int(queue["head"])
        tier, prompt = int(records[r]["tier"]), int(records[r]["prompt_tokens"])
        waited_s, limit_s, u = (
            (now_ps - int(records[r]["arrival_ps"])) / 1e12,
            1.0 + tier,
            0.5**tier,
        )
        share = waited_s / limit_s
        late, length, long = (
            float(share >= 1),
            queue["n_waiting"] / (queue["n_waiting"] + 32),
            prompt / 2000,
        )
        tiers = [float(tier == p) for p in range(3)] + [float(tier >= 3)]
        times = [min(share, 1), late, 1 - 1 / max(share, 1), u * min(share, 1), u * late]
        head = [*tiers, *times, long, u * long, length, u * length, late * length]
        rows = all_features(simulation, r)["instances"].astype(float)
        for i, row in enumerate(rows):
            if row[18] == 0:  # accepts
                continue
            tokens = (
                seen[i, 1] + seen[i, 5] + prompt
            )  # to prefill: of the running, of the waiting, its own
            soon_s = tokens / budget * 0.01 + np.ceil(tokens / budget) * seen[i, 8] / 1e3
            soon, misses = min(soon_s / limit_s, 2), waited_s + soon_s > limit_s
            full = [max(0.0, (row[k] - 0.75) * 4) for k in (15, 7)]
            pair = np.array([row[0], row[15], full[0], row[7], full[1], row[11], soon, misses])
            weighed = given["pair"][0] + u * given["pair"][1]
            scores[q, i] = float(np.dot(given["head"], head) + weighed @ pair)
    return scores


def test_both_policies_make_the_choice_of_the_formula_in_many_states(tmp_path):
    rng = np.random.default_rng(3)
    n_seen, n_waits = 0, 0
    for case in range(12):
        n = 120
        trace = Trace(
            np.sort(rng.random(n) * 4),
            rng.integers(1, 1200, n),
            rng.integers(1, 90, n),
            tier=rng.integers(0, 5, n),
        )
        player = f"learned:{write_checkpoint(tmp_path / f'p{case}', random_tensors(rng), CARD)}"
        given = random_tensors(rng)
        asked = f"learned:{write_checkpoint(tmp_path / f'a{case}', given, CARD)}"
        policies = [find_policy(kind, asked) for kind in ("queue", "dispatch")]
        params = policies[0].param_values({}, trace)
        nothing, stream = np.zeros(0), np.array([1], np.uint64)
        options = {"instances": 3, "tiers": 5, "max_num_seqs": 6, "kv_blocks": 300}
        config = find_system(player).configure(ClusterConfig(profile=FLAT, **options))
        simulation = Simulation(trace, config, find_policy("dispatch", player))
        for until_s in np.arange(0.3, 6.0, 0.3):
            simulation.run(float(until_s))
            pointer = int(simulation.state.shared[0]["state_pointer"])
            scores = expected_scores(simulation, given)
            best = min(scores, key=lambda pair: scores[pair])
            q = int(ask_queue(pointer, policies[0].address, params, nothing, stream))
            if len(scores) == 1:
                assert q == HOLD
                continue
            n_seen, n_waits = n_seen + 1, n_waits + (best == "wait")
            if best == "wait" and (simulation.state.instances["n_running"] > 0).any():
                assert q == HOLD
                continue
            best = min((pair for pair in scores if pair != "wait"), key=lambda pair: scores[pair])
            assert q == best[0]
            r = int(simulation.state.queues[q]["head"])
            i = ask_dispatch(pointer, policies[1].address, r, params, nothing, stream)
            assert (q, int(i)) == best
    assert n_seen >= 50
    assert 5 <= n_waits <= n_seen - 20


@pytest.mark.parametrize("wait", [NEVER_WAIT, 0.0, RATHER_WAIT])
def test_runs_drain_at_ten_times_what_the_cluster_sustains(tmp_path, wait):
    given = random_tensors(np.random.default_rng(1)) | {"wait": np.array([wait], np.float32)}
    system = f"learned:{write_checkpoint(tmp_path / 'any', given, CARD)}"
    trace = servegym.generate("azure-conv", 400, 10.0, seed=1).assign_tiers("enterprise", 1, 4)
    options: dict[str, Any] = {
        "instances": 3,
        "tiers": 4,
        "max_num_seqs": 16,
        "kv_blocks": 700,
    }
    result = servegym.simulate(trace, system=system, load=10.0, **options)
    assert result.summary()["finished"] == 400


@pytest.mark.parametrize("name", ["few", "tight", "stale"])
def test_it_plays_serve_as_it_runs_natively(tmp_path, name):
    clusters: dict[str, dict[str, Any]] = {
        "few": {"instances": 4, "tiers": 4, "max_num_seqs": 8},
        "tight": {"instances": 3, "tiers": 4, "kv_blocks": 900, "max_num_seqs": 24},
        "stale": {
            "instances": 4,
            "tiers": 4,
            "max_num_seqs": 8,
            "metrics_interval_s": 0.5,
            "routers": 3,
        },
    }
    cluster, waits = clusters[name], 0
    for seed in range(4):
        given = random_tensors(np.random.default_rng(seed))
        system = f"learned:{write_checkpoint(tmp_path / f'{seed}', given, CARD)}"
        env: Any = gymnasium.make(
            "servegym/Serve-v0",
            cluster=cluster,
            episode_requests=200,
            load=1.2,
            tier_mix="enterprise",
        ).unwrapped
        env.reset(seed=seed)
        policy, is_over = BaselinePolicy(system, env), False
        while not is_over:
            action, _ = policy.predict()
            waits += int(action == env.options.n_actions - 1)
            _, _, is_drained, is_cut, info = env.step(action)
            assert not info["illegal_action"]
            is_over = is_drained or is_cut
        options = {"seed": env.episode_seed, "horizon_s": env.options.horizon_s}
        native = servegym.simulate(env.trace, system=system, **cluster | options)
        records = env.result().records
        for column in records.dtype.names:
            np.testing.assert_array_equal(records[column], native.records[column], err_msg=column)
    assert waits > 0


def test_a_system_of_it_pulls_by_tier_and_has_both_policies(tmp_path):
    system = checkpoint(tmp_path, **BY_TIER)
    found = find_system(system)
    assert found.settings == PULL | {"queue": found.dispatch}
    config = found.configure(ClusterConfig(tiers=3, queue_by="none"))
    assert (config.queue_by, config.max_local_waiting, config.queue) == ("tier", 0, found.dispatch)
    with pytest.raises(ValueError, match="it has no admission policy, only dispatch, queue"):
        find_policy("admission", system)


def test_a_card_or_tensors_that_do_not_fit_say_why(tmp_path):
    good = tensors()
    wrong = [
        ({"head": good["head"][:-1]}, {}, r"tensor 'head' is float32\[13\]; must be float32\[14\]"),
        ({"pair": good["pair"].ravel()}, {}, r"'pair' is float32\[16\]; must be float32\[2, 8\]"),
        ({"wait": np.array([np.nan], np.float32)}, {}, r"wait\[0\] = nan; must be finite"),
        ({"weight": good["wait"]}, {}, "unknown tensor 'weight'"),
        (
            {},
            {"architecture": "set-mlp", "hidden": 8},
            "architecture = 'set-mlp' of decision 'serve'",
        ),
        ({}, {"hidden": 8}, "hidden = 8; linear has no hidden layer"),
    ]
    for changed, card, message in wrong:
        with pytest.raises(ValueError, match=message):
            write_checkpoint(tmp_path / "bad", good | changed, CARD | card)
    with pytest.raises(ValueError, match="tensor 'wait' is missing"):
        write_checkpoint(tmp_path / "bad", {k: v for k, v in good.items() if k != "wait"}, CARD)
    path = write_checkpoint(tmp_path / "good", good, CARD)
    card = read_checkpoint(path).card
    of_another = card["features"] | {"queue": ["length"]}
    with pytest.raises(ValueError, match="'queue' is of another version"):
        write_checkpoint(tmp_path / "bad", good, CARD | {"features": of_another})
