"""The schedule of faults: crashes, slow instances, lost metrics, broken links.

Source: docs/engine.md section 14. Faults of one kind on one instance may overlap: factors multiply,
anything else lasts until the last of them is over.
"""

import math
from typing import TYPE_CHECKING

from reference.options import Fault

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster


class Faults:
    """What is in force, and what is to come: (time, is_begin, place in the schedule)."""

    def __init__(self, cluster: "ReferenceCluster") -> None:
        self.cluster = cluster
        self.schedule = cluster.options.faults
        ends = [(fault.end_ps, False, k) for k, fault in enumerate(self.schedule)]
        begins = [(fault.at_ps, True, k) for k, fault in enumerate(self.schedule)]
        self.to_come = sorted(ends + begins)
        self.in_force: list[Fault] = []
        self._hit: list[Fault] = []  # crashes in force whose instance was not absent
        self.n_lost = 0  # requests that were aboard

    @property
    def next_event_ps(self) -> int | None:
        """The next begin or end."""
        return self.to_come[0][0] if self.to_come else None

    def act(self) -> None:
        """Begin and end what is due, ends first."""
        while self.to_come and self.to_come[0][0] <= self.cluster.now:
            _, is_begin, k = self.to_come.pop(0)
            if is_begin:
                self.in_force.append(self.schedule[k])
                self._begin(self.schedule[k])
            else:
                self.in_force.remove(self.schedule[k])
                self._end(self.schedule[k])
            self.cluster.gateway.is_called = True

    def has(self, kind: str, i: int) -> bool:
        """Return whether such a fault is in force on an instance."""
        return any(fault.kind == kind and fault.instance == i for fault in self.in_force)

    def _begin(self, fault: Fault) -> None:
        i = fault.instance
        if fault.kind == "crash" and self.cluster.fleet.states[i] != "absent":
            self._hit.append(fault)
            self.cluster.moves.lose_instance(i)
            self.cluster.fleet.fail(i)
            self._lose_requests(i)
        elif fault.kind == "link":
            self.cluster.moves.links_down[i] += 1
            self.cluster.moves.lose_link(i)
        self._set_factor(i)

    def _end(self, fault: Fault) -> None:
        i = fault.instance
        if fault in self._hit:
            self._hit.remove(fault)
            self.cluster.fleet.recover(i)
        elif fault.kind == "link":
            self.cluster.moves.links_down[i] -= 1
        self._set_factor(i)

    def _lose_requests(self, i: int) -> None:
        engine = self.cluster.engines[i]
        is_retry = self.cluster.options.on_failure == "retry"
        for request in engine.everyone:
            request.recomputed_tokens += request.computed if is_retry else 0
        for request in engine.crash():
            self.n_lost += 1
            if is_retry:
                self.cluster.gateway.enter(request)
            else:
                self.cluster.end(request, "failed")

    def _set_factor(self, i: int) -> None:
        factors = [f.factor for f in self.in_force if f.kind == "slow" and f.instance == i]
        self.cluster.engines[i].slow_factor = math.prod(factors)
