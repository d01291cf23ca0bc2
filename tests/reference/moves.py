"""Moves of requests from one instance to another: cold, and live in stages.

Source: docs/engine.md section 12.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from reference.model import PS_PER_S, Request

if TYPE_CHECKING:
    from reference.cluster import ReferenceCluster


class LedgerLine(NamedTuple):
    """One move that was asked for, and what became of it: cold, committed, refused or aborted."""

    began_ps: int
    ended_ps: int
    source: int
    destination: int
    request: int
    outcome: str
    reason: str = ""
    downtime_ps: int = 0


@dataclass(eq=False)
class Move:
    """A live move under way, or a parked request that returns after its move failed."""

    request: Request
    source: int
    destination: int
    began_ps: int
    preemptions: int  # of the request when the move began
    attempt: int
    stage: int = 1
    phase: Literal["copying", "stopping", "parked", "returning"] = "copying"
    copied: int = 0
    copying: int = 0  # in the stage under way or about to begin
    n_blocks: int = 0  # reserved at the destination
    n_seats: int = 0
    reason: str = ""  # why it failed
    copy_end_ps: int = -1
    stop_ps: int = -1


class Moves:
    """The moves under way, in the order in which they began, and the ledger of those that are over."""

    def __init__(self, cluster: "ReferenceCluster") -> None:
        self.cluster = cluster
        self.options = cluster.options
        self.engines = cluster.engines
        self.under_way: list[Move] = []
        self.ledger: list[LedgerLine] = []
        self.link_free_ps = [0] * len(self.engines)
        self.links_down = [0] * len(self.engines)  # faults in force

    # What the policy asks for.

    def begin(self, source: int, destination: int, request: Request) -> None:
        """Carry out one line of a migration policy."""
        reason = self._refusal(source, destination, request)
        if reason:
            self._write(source, destination, request, "refused", reason)
        elif request.status == "waiting":
            self._move_cold(source, destination, request)
        else:
            self._move_live(source, destination, request)

    def _refusal(self, source: int, destination: int, request: Request) -> str:
        if source == destination:
            return "same instance"
        if request not in self.engines[source].everyone:
            return "not at the source"
        if self.move_of(request) is not None:
            return "in a move"
        if request.status == "running" and not self.engines[source].decodes(request):
            return "prefilling"
        engine = self.engines[destination]
        if not self.cluster.fleet.is_active(destination) or not engine.fits(request):
            return "destination"
        if request.status == "waiting":
            return ""
        if self.links_down[source] or self.links_down[destination]:
            return "link down"
        # the first reservation
        return "" if engine.reserve(request.blocks - 1) else "no blocks"

    def _move_cold(self, source: int, destination: int, request: Request) -> None:
        self.engines[source].drop(request)
        self.engines[destination].place(request, self.cluster.now)
        request.migrations += 1
        self._write(source, destination, request, "cold")
        self.cluster.gateway.is_called = True

    def _move_live(self, source: int, destination: int, request: Request) -> None:
        now = self.cluster.now
        move = Move(request, source, destination, now, request.preemptions, request.attempt)
        self.under_way.append(move)
        move.copying = move.n_blocks = request.blocks - 1
        self._ask_copy(move)
        self._advance(move)

    # Stages.

    @property
    def next_event_ps(self) -> int | None:
        """The end of the next copy."""
        now = self.cluster.now
        ends = [m.copy_end_ps for m in self.under_way if m.copy_end_ps > now]
        return min(ends, default=None)

    def advance(self) -> None:
        """Let every move go as far as it comes at this instant."""
        for move in list(self.under_way):
            self._advance(move)

    def _advance(self, move: Move) -> None:
        now = self.cluster.now
        is_between = {i: self.engines[i].end_ps is None for i in (move.source, move.destination)}
        while move in self.under_way:
            is_copied = move.copy_end_ps <= now
            if move.phase == "copying" and is_copied:
                self._end_stage(move)
            elif move.phase == "stopping" and is_between[move.source]:
                self._stop(move)
            elif move.phase == "parked" and is_copied and is_between[move.destination]:
                self._commit(move)
            elif move.phase == "returning" and is_between[move.source]:
                self._return(move)
            else:
                return

    def _end_stage(self, move: Move) -> None:
        request = move.request
        move.copied, move.copying = move.copied + move.copying, 0
        if self._has_ended(move):
            return self.abort(move, "ended first")
        if request.preemptions != move.preemptions:
            return self.abort(move, "preempted first")
        if not self.cluster.fleet.is_active(move.destination):
            return self.abort(move, "destination lost")
        rest = request.blocks - move.copied
        assert rest >= 1
        is_small = rest <= self.options.most_blocks_in_last_stage
        is_last = is_small or move.stage >= self.options.migration_stages - 1
        if is_last and not is_small:
            return self.abort(move, "stages exceeded")
        n_blocks, n_seats = (rest, 1) if is_last else (rest - 1, 0)
        if not self.engines[move.destination].reserve(n_blocks, n_seats):
            return self.abort(move, "no room")
        move.copying, move.n_seats = n_blocks, n_seats
        move.n_blocks += n_blocks
        if is_last:
            move.phase = "stopping"
        else:
            move.stage += 1
            self._ask_copy(move)

    def _stop(self, move: Move) -> None:
        if self._has_ended(move):
            return self.abort(move, "ended first")
        assert move.copied + move.copying == move.request.blocks
        self.engines[move.source].park(move.request)
        move.phase, move.stop_ps = "parked", self.cluster.now
        self._ask_copy(move)

    def _commit(self, move: Move) -> None:
        if self.cluster.fleet.states[move.destination] not in ("active", "draining"):
            return self.abort(move, "destination lost")
        self.engines[move.destination].take_over(move.request, self.engines[move.source])
        move.request.migrations += 1
        self._end(move, "committed")

    def _has_ended(self, move: Move) -> bool:
        return not move.request.is_in_system or move.request.attempt != move.attempt

    def _ask_copy(self, move: Move) -> None:
        """Queue the copy on both links. Nothing to copy asks for no link."""
        now = self.cluster.now
        if move.copying == 0:
            move.copy_end_ps = now
            return
        spec = self.engines[move.source].spec
        n_bytes = spec.block_size * spec.kv_bytes_per_token
        block_ps = round(n_bytes / self.options.link_bytes_per_s * PS_PER_S)
        ends = (move.source, move.destination)
        begin_ps = max(now, *(self.link_free_ps[i] for i in ends))
        move.copy_end_ps = begin_ps + move.copying * block_ps
        for i in ends:
            self.link_free_ps[i] = move.copy_end_ps

    # The end of moves.

    def abort(self, move: Move, reason: str) -> None:
        """Give the reservation back; a parked request runs on at the source, between iterations."""
        self._unreserve(move)
        if move.phase != "parked":
            return self._end(move, "aborted", reason)
        move.phase, move.reason = "returning", reason
        if self.engines[move.source].end_ps is None:
            self._return(move)

    def _return(self, move: Move) -> None:
        self.engines[move.source].unpark(move.request)
        self._end(move, "aborted", move.reason)

    def drop_parked(self, request: Request, reason: str) -> None:
        """Abort the move of a parked request that goes away; it stands in `running` for a moment."""
        move = self.move_of(request)
        assert move is not None
        self._unreserve(move)
        self.engines[move.source].unpark(request)
        self._end(move, "aborted", reason)

    def _unreserve(self, move: Move) -> None:
        self.engines[move.destination].unreserve(move.n_blocks, move.n_seats)
        move.n_blocks = move.n_seats = 0

    def is_expected_at(self, i: int) -> bool:
        """Return whether a move to an instance is under way."""
        return any(m.destination == i and m.phase != "returning" for m in self.under_way)

    def lose_instance(self, i: int) -> None:
        """Abort the moves from and to an instance that crashes."""
        for move in list(self.under_way):
            if i == move.source and move.request.status == "parked":
                self.drop_parked(move.request, "source lost")
            elif i == move.source:
                self.abort(move, "source lost")
            elif i == move.destination and move.phase != "returning":
                self.abort(move, "destination lost")

    def lose_link(self, i: int) -> None:
        """Abort the moves from and to an instance whose link breaks."""
        for move in list(self.under_way):
            if i in (move.source, move.destination) and move.phase != "returning":
                self.abort(move, "link lost")

    def move_of(self, request: Request) -> Move | None:
        """Return the move that a request is in."""
        return next((move for move in self.under_way if move.request is request), None)

    def _end(self, move: Move, outcome: str, reason: str = "") -> None:
        self.under_way.remove(move)
        downtime = self.cluster.now - move.stop_ps if outcome == "committed" else 0
        self._write(
            move.source, move.destination, move.request, outcome, reason, move.began_ps, downtime
        )
        self.cluster.gateway.is_called = True

    def _write(
        self,
        source: int,
        destination: int,
        request: Request,
        outcome: str,
        reason: str = "",
        began_ps: int | None = None,
        downtime_ps: int = 0,
    ) -> None:
        now = self.cluster.now
        began_ps = now if began_ps is None else began_ps
        self.ledger.append(
            LedgerLine(
                began_ps, now, source, destination, request.index, outcome, reason, downtime_ps
            )
        )

    def check_conservation(self) -> None:
        """Assert that what is reserved at each instance is what the moves to it reserved."""
        for i, engine in enumerate(self.engines):
            coming = [move for move in self.under_way if move.destination == i]
            assert engine.reserved_blocks == sum(move.n_blocks for move in coming)
            assert engine.reserved_seats == sum(m.n_seats for m in coming)
            leaving = [
                move
                for move in self.under_way
                if move.source == i and move.phase in ("parked", "returning")
            ]
            assert {m.request for m in leaving} == set(engine.parked)
        moving = [move.request for move in self.under_way]
        assert len(set(moving)) == len(moving)
