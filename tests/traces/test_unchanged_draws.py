"""Golden: what every shipped workload draws. A change of it is a Results change, in the changelog.

The invariants beside it, lengths and rates in range and prefixes that agree, are in test_workload.py.
"""

import pytest

from servegym.traces import generate, workload_names

# workload_hash of 2,000 requests at 3 req/s, Poisson, seed 7.
DRAWN = {
    "arxiv-summarization": "a4a8c1d480c7c7d016c976ac9d89be21",
    "azure-code": "a4eddbc888bd57c91483678e7984de2b",
    "azure-conv": "ce83ed41b7c56ec21d6a50242d9ad061",
    "burstgpt": "07ec532e19528ad57f035973fc3de289",
    "deepseek-r1": "8aef5f9db732e80ce89e06f208c76d30",
    "driftsched-tokens": "1c39e590857a8340deed35172de9c7b8",
    "driftsched-tokens-category": "1c39e590857a8340deed35172de9c7b8",
    "driftsched-tokens-ramp": "495bc368436c1b89ebb72c2dc0369814",
    "driftsched-tokens-step": "1c39e590857a8340deed35172de9c7b8",
    "driftsched-words": "f5a5e8f538fc2f7cf59aeeb15369e0ec",
    "fixed-512-128": "2c41855a0a8c839bafbcac43056a4e50",
    "mooncake-conversation": "96d34f3be351ca0c6e6162bbc84561c8",
    "powerlaw-128-128": "9b615888e0471d023fba2d1136e6de7f",
    "powerlaw-128-512": "666c2337769ac37bde9540c5484f187a",
    "powerlaw-256-256": "36bfd6f0b9b91cf476851a6deb2bf04c",
    "powerlaw-512-128": "01689e64195b6dc1c484bb0057f79151",
    "powerlaw-512-512": "e51e179d05b4c4348aa018eb6e217398",
    "sharegpt": "cfb5e3056c0b3ec39c915b60fbd518bc",
    "zipf-64-512": "389649092031945a4a32e57dea78d9ae",
}


def test_every_shipped_workload_has_its_draw_on_record():
    assert sorted(DRAWN) == workload_names()


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_those_on_record(name):
    trace = generate(name, 2000, 3.0, 7)
    assert trace.workload_hash == DRAWN[name]
    assert trace.prompt_tokens.min() >= 1 and trace.output_tokens.min() >= 1
    assert trace.mean_rate_per_s == pytest.approx(3.0, rel=0.1)
