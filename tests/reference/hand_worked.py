"""What hand-worked tests of a cluster share: an iteration takes 10 ms, a block is 16 tokens."""

from collections.abc import Sequence
from typing import Any

from reference.cluster import ReferenceCluster
from reference.model import PS_PER_MS, InstanceSpec, IterationTime, Request
from reference.options import Options


def spec(**changes: Any) -> InstanceSpec:
    """Return vllm-v1 with 100 blocks; a block is 16000 bytes."""
    values = {"engine": "vllm-v1", "time": IterationTime(c0=10.0), "kv_blocks": 100}
    return InstanceSpec(**{**values, "kv_bytes_per_token": 1000, **changes})


def requests(*rows: tuple[int, ...]) -> list[Request]:
    """Rows are (arrival_ms, prompt, output[, tier]); every prediction is 7 tokens."""
    trace = []
    for i, (arrival_ms, prompt, output, *rest) in enumerate(rows):
        tier = rest[0] if rest else 0
        trace.append(Request(i, arrival_ms * PS_PER_MS, prompt, output, 7, tier))
    return trace


def to(*instances: int) -> Any:
    """Return a dispatch that follows a script."""
    return lambda cluster, request: instances[request.index]


def first_accepting(cluster: ReferenceCluster, request: Request) -> int:
    """Dispatch to the least instance that accepts."""
    accepts = [cluster.is_accepting(request, i) for i in range(len(cluster.engines))]
    return accepts.index(True)


def load(
    fleet: Sequence[InstanceSpec],
    trace: list[Request],
    dispatch: Any = first_accepting,
    policies: dict[str, Any] | None = None,
    **options: Any,
) -> ReferenceCluster:
    """Return a cluster; options that end in _ms are times."""
    times = {name: value for name, value in options.items() if name.endswith("_ms")}
    others = {name: value for name, value in options.items() if not name.endswith("_ms")}
    in_ps = {f"{name[:-3]}_ps": round(value * PS_PER_MS) for name, value in times.items()}
    cluster_options = Options(**others, **in_ps)
    return ReferenceCluster(fleet, trace, dispatch, options=cluster_options, **(policies or {}))


def play(*arguments: Any, until: float | None = None, **options: Any) -> ReferenceCluster:
    """Load and run to the end, or until an instant in ms."""
    cluster = load(*arguments, **options)
    cluster.run(None if until is None else round(until * PS_PER_MS))
    return cluster


def go_on(cluster: ReferenceCluster, until: float | None = None) -> None:
    """Run on to the end, or until an instant in ms."""
    cluster.run(None if until is None else round(until * PS_PER_MS))


def ms(time_ps: int | None) -> float | None:
    """Return a time in ms."""
    return None if time_ps is None else time_ps / PS_PER_MS


def finishes(trace: list[Request]) -> list[float | None]:
    """Return every finish in ms."""
    return [ms(request.finish_ps) for request in trace]
