"""What an episode plays: equal to what is drawn natively, a function of the sequence, errors that name the field."""

import pickle

import numpy as np
import pytest

from servegym.baselines.saturation import saturation_rate, scale_to_rate
from servegym.envs.episode_traces import EpisodeTraces
from servegym.simulator.config import ClusterConfig
from servegym.traces import Labels, Trace, generate, workload, workload_names

CONFIG = ClusterConfig(instances=2, tiers=4)
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "tier")


def episode(seed: int, number: int = 0) -> np.random.SeedSequence:
    """Return the sequence of one episode of a seed."""
    return np.random.SeedSequence(seed, spawn_key=(number,))


def recorded(n: int = 100) -> Trace:
    """Return a trace whose lengths tell the row: request r at r^2 s, prompt r + 1."""
    r = np.arange(n)
    tenant = Labels(("a", "b"), r % 2)
    return Trace(r**2 + 7.0, r + 1, 2 * r + 1, tier=r % 4, tenant=tenant, name="squares")


def same(a: Trace, b: Trace) -> bool:
    """Return whether two traces are equal, request by request."""
    return a.workload_hash == b.workload_hash


# Workloads.


@pytest.mark.parametrize("name", workload_names())
def test_every_workload_plays_what_generate_draws(name):
    episodes = EpisodeTraces(CONFIG, name, episode_requests=300, rate_per_s=2.0)
    drawn = episodes.draw(episode(3, 8))
    native = scale_to_rate(generate(name, 300, 2.0, episode(3, 8)), 2.0)
    assert same(drawn, native)
    assert drawn.mean_rate_per_s == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("arrivals", ["poisson", "fitted", "gamma:cv=3", "deterministic"])
def test_arrivals_are_those_of_the_process_named(arrivals):
    episodes = EpisodeTraces(CONFIG, episode_requests=200, rate_per_s=5.0, arrivals=arrivals)
    native = generate("azure-conv", 200, 5.0, episode(1), arrivals)
    assert same(episodes.draw(episode(1)), scale_to_rate(native, 5.0))


def test_neither_load_nor_rate_is_the_recorded_rate():
    model = workload("azure-conv")
    drawn = EpisodeTraces(CONFIG, model, episode_requests=50).draw(episode(0))
    assert drawn.mean_rate_per_s == pytest.approx(model.recorded_rate_per_s, rel=1e-12)


def test_load_is_a_fraction_of_the_saturation_rate():
    rate_per_s = 0.9 * saturation_rate(workload("fixed-512-128"), CONFIG)
    episodes = EpisodeTraces(CONFIG, "fixed-512-128", load=0.9)
    assert episodes.rate_per_s == pytest.approx(rate_per_s, rel=1e-12)
    assert episodes.draw(episode(0)).mean_rate_per_s == pytest.approx(rate_per_s, rel=1e-12)


def test_draw_is_a_function_of_the_sequence_alone():
    episodes = EpisodeTraces(CONFIG, episode_requests=50, tier_mix="fair-enterprise")
    drawn = [episodes.draw(episode(s, k)) for s in range(2) for k in range(3)]
    assert len({trace.workload_hash for trace in drawn}) == 6
    twin = pickle.loads(pickle.dumps(episodes))
    assert same(twin.draw(episode(1, 1)), drawn[4])
    assert same(episodes.draw(episode(1, 1)), drawn[4])


def test_tiers_are_drawn_as_assign_tiers_does_and_move_nothing_else():
    plain = EpisodeTraces(CONFIG, episode_requests=500)
    mixed = EpisodeTraces(CONFIG, episode_requests=500, tier_mix="fair-enterprise")
    shares = EpisodeTraces(CONFIG, episode_requests=500, tier_mix=[0.175, 0.475, 0.31, 0.04])
    drawn = mixed.draw(episode(4))
    assert same(drawn, plain.draw(episode(4)).assign_tiers("fair-enterprise", episode(4), 4))
    assert (drawn.tier == shares.draw(episode(4)).tier).all()
    # .175 of 500 = 87.5, standard deviation 8.5: within 4 of it
    assert 54 < (drawn.tier == 0).sum() < 122


def test_fixed_plays_the_first_episode_of_the_seed_in_all():
    free, fixed = (EpisodeTraces(CONFIG, episode_requests=50, fixed=f) for f in (False, True))
    for seed in range(2):
        first = free.draw(episode(seed, 0))
        assert all(same(fixed.draw(episode(seed, k)), first) for k in range(4))


# Traces.


def test_longer_trace_plays_windows_that_begin_anywhere():
    """100 rows in windows of 98: they begin at row 0, 1 or 2, all of which come up in 60 draws."""
    source = recorded()
    episodes = EpisodeTraces(CONFIG, source, episode_requests=98)
    starts = set()
    for k in range(60):
        drawn = episodes.draw(episode(0, k))
        start = int(drawn.prompt_tokens[0]) - 1
        starts.add(start)
        rows = slice(start, start + 98)
        assert drawn.arrival_s.tolist() == (source.arrival_s[rows] - start**2 - 7.0).tolist()
        for name in COLUMNS[1:]:
            assert (getattr(drawn, name) == getattr(source, name)[rows]).all()
        assert drawn.tenant is not None and source.tenant is not None
        assert (drawn.tenant.codes == source.tenant.codes[rows]).all()
    assert starts == {0, 1, 2}


def test_windows_are_scaled_to_the_load_with_the_lengths_of_the_whole():
    source = recorded()
    episodes = EpisodeTraces(CONFIG, source, episode_requests=10, load=0.5)
    rate_per_s = 0.5 * saturation_rate(source, CONFIG)
    for k in range(5):
        drawn = episodes.draw(episode(0, k))
        assert drawn.mean_rate_per_s == pytest.approx(rate_per_s, rel=1e-12)
        assert drawn.arrival_s[0] == 0.0


@pytest.mark.parametrize("episode_requests", [100, 5000])
def test_trace_of_an_episode_or_less_is_played_whole(episode_requests):
    episodes = EpisodeTraces(CONFIG, recorded(), episode_requests=episode_requests, rate_per_s=3.0)
    native = scale_to_rate(recorded().shift(-7.0), 3.0)
    for k in range(3):
        drawn = episodes.draw(episode(k, k))
        for name in COLUMNS:
            assert (getattr(drawn, name) == getattr(native, name)).all()


def test_file_is_read_and_told_from_a_workload(tmp_path):
    trace_path, model_path = tmp_path / "mine.parquet", tmp_path / "mine.json"
    recorded().save(trace_path)
    model_path.write_text(workload("azure-conv").to_json())
    for path in (trace_path, str(trace_path)):
        assert same(EpisodeTraces(CONFIG, path).draw(episode(0)), recorded().shift(-7.0))
    drawn = EpisodeTraces(CONFIG, str(model_path), episode_requests=50).draw(episode(0))
    assert same(drawn, EpisodeTraces(CONFIG, episode_requests=50).draw(episode(0)))


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "azure-con"}, "workload = 'azure-con'; did you mean 'azure-conv'"),
        ({"workload": "none.json"}, "workload = 'none.json'; there is no such file"),
        ({"workload": 3}, "workload = 3; must be a name, a path, a Workload or a Trace"),
        ({"workload": Trace([], [], [])}, "it has no requests"),
        ({"workload": "sharegpt"}, "sharegpt was recorded without times"),
        ({"episode_requests": 1}, "episode_requests = 1; must be a whole number >= 2"),
        ({"episode_requests": 2.5}, "episode_requests = 2.5; must be a whole number >= 2"),
        ({"episode_requests": True}, "episode_requests = True; must be a whole number >= 2"),
        ({"load": 1.0, "rate_per_s": 2.0}, "load = 1.0 and rate_per_s = 2.0"),
        ({"load": -1.0}, "load = -1.0; must be finite and > 0"),
        ({"rate_per_s": float("nan")}, "rate_per_s = nan; must be finite and > 0"),
        ({"rate_per_s": "fast"}, "rate_per_s = 'fast'; must be finite and > 0"),
        ({"arrivals": "poison"}, "arrivals = 'poison'; did you mean 'poisson'"),
        ({"arrivals": "gamma"}, "gamma arrivals need cv"),
        (
            {"workload": recorded(), "arrivals": "poisson"},
            "arrivals = 'poisson'; a trace has its own",
        ),
        ({"tier_mix": "fair-enterprize"}, "tier mix = 'fair-enterprize'; did you mean"),
        ({"tier_mix": [0.5, 0.5]}, "tiers = 4; the mix has 2 fractions"),
        ({"fixed": 1}, "fixed = 1; must be True or False"),
    ],
)
def test_bad_option_is_named_with_its_value(options, message):
    with pytest.raises(ValueError) as error:
        EpisodeTraces(CONFIG, **options)
    assert message in str(error.value)


def test_windows_without_a_rate_are_refused_before_any_is_played():
    """Rows 2 to 4 arrive at once: a window of 3 there has no rate, one of 4 has."""
    source = Trace([0.0, 1.0, 2.0, 2.0, 2.0, 3.0], [1] * 6, [1] * 6)
    with pytest.raises(ValueError, match="episode_requests = 3; as many of the trace arrive"):
        EpisodeTraces(CONFIG, source, episode_requests=3, rate_per_s=1.0)
    EpisodeTraces(CONFIG, source, episode_requests=4, rate_per_s=1.0)
    EpisodeTraces(CONFIG, source, episode_requests=3)
