"""The named systems, one entry each: what the paper prescribes beside dispatch, and nothing it leaves to the user.

Keys are fields of ClusterConfig, and `dispatch`, `dispatch_params`, `summary` and `source`. A system sets an estimator
only if its paper prescribes it. All play on the cluster's own engine (the fair arm): what differs is scheduling.
No entry scales the fleet, so that instances stay what the user asked for: add `scaling=freeness`.
"""

from typing import Any

BERKELEY = "Beyond Binary Priorities (UC Berkeley)"
LLUMNIX = "Llumnix (OSDI '24)"
DRIFTSCHED = "DriftSched"
# DriftSched's queues stand at the gateway, and an instance gets a request only when it has room for it. Its tenants,
# premium, standard and batch, are tiers 0, 1 and 2. With `queue_by=tenant` slots go by tenant code, the place in
# `trace.tenant.names`; priority and aging stay by tier.
PULL = {
    "dispatch": "least-requests",
    "queue_by": "tier",
    "max_local_waiting": 0,
    "estimator": "driftsched",
}

SYSTEMS: dict[str, dict[str, Any]] = {
    "n-tier": {
        "summary": "Largest freeness with headroom for every tier present; moves from the least to the most free.",
        "source": BERKELEY,
        "dispatch": "n-tier",
        "order": "priority",
        "migration": "n-tier",
        "rebalance_interval_s": 0.05,
    },
    "infaas-vllm": {
        "summary": "Shortest queue, running counted twice, plus 1 for an overloaded instance.",
        "source": BERKELEY,
        "dispatch": "infaas-vllm",
    },
    "vllm-priority": {
        "summary": "vLLM's priority scheduling behind a router that counts requests.",
        "source": "vLLM 0.19, --scheduling-policy priority",
        "dispatch": "least-requests",
        "order": "priority",
    },
    "llumnix": {
        "summary": "Largest freeness; live migration from loaded to free instances; a reserve for tier 0.",
        "source": LLUMNIX,
        "dispatch": "llumnix-dispatch",
        "order": "priority",
        "migration": "llumnix",
        "rebalance_interval_s": 0.05,  # the later version polls every 50 ms
        "migration_stages": 2,  # all blocks but the last while decoding, then the rest
    },
    "llumnix-later": {
        "summary": "Most blocks left a request; the shortest moves, in up to 3 stages, one at a time in and out.",
        "source": f"{LLUMNIX}, its public code afterwards",
        "dispatch": "llumnix-steps",
        "order": "priority",
        "migration": "llumnix",
        "migration_params": {"shortest": 1, "slots": 1},
        "rebalance_interval_s": 0.05,
        "migration_stages": 3,
        "last_stage_blocks": 16,
    },
    "block": {
        "summary": "Smallest E2E foretold by playing every instance forward with the request added.",
        "source": "Block (Cambridge; SYSTOR '26), fan-out",
        "dispatch": "block",
    },
    "astrolabe": {
        "summary": "Smallest E2E foretold by playing two instances, drawn at random, forward.",
        "source": "Astrolabe (Cambridge; SYSTOR '26)",
        "dispatch": "astrolabe",
    },
    "marginal": {
        "summary": "Least rise of everyone's latency, foretold by playing instances forward.",
        "source": "this project",
        "dispatch": "marginal",
    },
    "driftsched-fifo": {
        "summary": "The oldest request first.",
        "source": f"{DRIFTSCHED}, FIFO",
        **PULL,
        "order": "fcfs",
    },
    "driftsched-priority": {
        "summary": "The most urgent tier first, strictly.",
        "source": f"{DRIFTSCHED}, Priority",
        **PULL,
        "order": "priority",
    },
    "driftsched-weighted": {
        "summary": "Turns by weight, five for tier 0, three for tier 1, two for tier 2; empty ones are skipped.",
        "source": f"{DRIFTSCHED}, Weighted (slots PPPPPSSSBB)",
        **PULL,
        "order": "fcfs",
        "queue": "weighted",
    },
    "driftsched-sjf": {
        "summary": "The fewest prompt and predicted output tokens first.",
        "source": f"{DRIFTSCHED}, SJF",
        **PULL,
        "order": "sjf",
    },
    "driftsched-aging": {
        "summary": "By tier, less .01 for every second waited.",
        "source": f"{DRIFTSCHED}, Aging",
        **PULL,
        "order": "aging",
    },
}
