"""The fleet: which instances are active, what a scaling policy orders, what is charged.

Source: docs/engine.md section 13.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster


class Fleet:
    """Every instance is active, starting, draining, failed or absent."""

    def __init__(self, cluster: "ReferenceCluster") -> None:
        self.cluster = cluster
        self.options = cluster.options
        n = len(cluster.engines)
        n_active = n if self.options.instances is None else self.options.instances
        self.states = ["active" if i < n_active else "absent" for i in range(n)]
        self.ready_ps: dict[int, int] = {}  # of those that start
        self.crashes = [0] * n  # faults in force
        self.state_before: dict[int, str] = {}  # of those that failed
        self.charged_ps = [0] * n  # of the times that are over
        self.charged_since: dict[int, int] = {i: 0 for i in range(n_active)}
        self.n_starts = 0  # orders to start
        self.n_drains = 0  # orders to drain

    def is_active(self, i: int) -> bool:
        """Return whether the instance may be given requests."""
        return self.states[i] == "active"

    def instance_ps(self, now: int) -> int:
        """Return what is charged until now, over all instances."""
        return sum(self.charged_ps) + sum(now - since for since in self.charged_since.values())

    # Orders.

    def order(self, change: int) -> bool:
        """Carry out what the scaling policy says; return whether anything changed."""
        assert change in (-1, 0, 1)
        if change == 1:
            return self._grow()
        return change == -1 and self._shrink()

    def _grow(self) -> bool:
        if "draining" in self.states:
            self.states[self.states.index("draining")] = "active"
            self.cluster.gateway.is_called = True
        elif "absent" in self.states:
            i = self.states.index("absent")
            self.charged_since[i] = self.cluster.now
            self.n_starts += 1
            self._start(i)
        else:
            return False
        return True

    def _shrink(self) -> bool:
        active = [i for i, state in enumerate(self.states) if state == "active"]
        if len(active) <= self.options.min_instances:
            return False
        engines = self.cluster.engines
        i = min(active, key=lambda i: (len(engines[i].running), -i))
        self.states[i] = "draining"
        self.n_drains += 1
        return True

    def _start(self, i: int) -> None:
        self.states[i] = "starting"
        self.ready_ps[i] = self.cluster.now + self.options.startup_delay_ps
        self.finish_starts()

    # What happens by itself.

    def finish_starts(self) -> None:
        """Make active what is ready."""
        for i, ready_ps in sorted(self.ready_ps.items()):
            if ready_ps <= self.cluster.now:
                del self.ready_ps[i]
                self.states[i] = "active"
                self.cluster.gateway.is_called = True

    def retire(self) -> None:
        """Let go the draining instances that hold nobody and expect nobody."""
        for i, state in enumerate(self.states):
            is_used = self.cluster.engines[i].is_occupied or self.cluster.moves.is_expected_at(i)
            if state == "draining" and not is_used:
                self._leave(i)

    def _leave(self, i: int) -> None:
        self.states[i] = "absent"
        self.charged_ps[i] += self.cluster.now - self.charged_since.pop(i)

    # Crashes.

    def fail(self, i: int) -> None:
        """Mark an instance that is not absent as failed."""
        self.crashes[i] += 1
        if self.crashes[i] == 1:
            self.state_before[i] = self.states[i]
            self.ready_ps.pop(i, None)
        self.states[i] = "failed"

    def recover(self, i: int) -> None:
        """End one crash; with the last one, go on as what it was."""
        self.crashes[i] -= 1
        if self.crashes[i] > 0:
            return
        before = self.state_before.pop(i)
        if before == "draining":
            self._leave(i)
        elif before == "starting":
            self._start(i)
        else:
            self.states[i] = "active"
