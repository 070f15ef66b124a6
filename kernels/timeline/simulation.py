"""A discrete-event model of a modular step on a device: who may start when, what fits beside what, who has the memory.

Three ways to hand over from a launch to the next:

    graph  a launch starts when the one before has ended, and a gap after that
    pdl    programmatic dependent launch: programs are admitted once all of the launch before have started; they load
           what no launch of the step writes, then wait until the whole launch before has ended
    tiles  admitted as with pdl, but a program waits for its own producers alone

Resources: each multiprocessor has room for so many programs of a stage, shared where stages run beside each other;
launches are admitted in order. All transfers that are under way share the memory's bandwidth equally. What a program
takes beside its transfers are two fixed latencies. Not modelled: caches, a limit of a single multiprocessor's share of
the bandwidth, arithmetic that competes, the spread between equal programs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Mode = Literal["graph", "pdl", "tiles"]
MODES: tuple[Mode, ...] = ("graph", "pdl", "tiles")

Producers = Callable[[int], Sequence[range] | None]


@dataclass(frozen=True, slots=True)
class Machine:
    """multiprocessors; bandwidth in bytes a ns; latencies in ns.

    gap: from the end of a launch to the first start of the next (graph). release: from the end of what it waits for
    to the end of a program's wait. trigger: from the last start of a launch to the first admission of the next.
    """

    multiprocessors: int
    bandwidth: float
    gap: float
    release: float
    trigger: float = 0.0

    def __post_init__(self) -> None:
        if self.multiprocessors < 1 or self.bandwidth <= 0 or min(self.gap, self.release, self.trigger) < 0:
            raise ValueError(f"{self}: it needs a multiprocessor, bandwidth, and no latency below 0")


@dataclass(frozen=True, slots=True)
class Launch:
    """programs: how many; residents: how many of them fit on a multiprocessor at once (None: they take no room).

    A program: lead ns, then early_bytes, which may come before its wait ends; then late_bytes, then follow ns.
    producers: program -> those of the launch before that it needs; None: all. The first launch needs none.
    release: its own, in place of the machine's.
    """

    name: str
    programs: int
    residents: int | None
    lead: float = 0.0
    early_bytes: float = 0.0
    late_bytes: float = 0.0
    follow: float = 0.0
    producers: Producers = field(default=lambda program: None)
    release: float | None = None

    def __post_init__(self) -> None:
        if self.programs < 1 or (self.residents is not None and self.residents < 1):
            raise ValueError(f"{self.name}: {self.programs} programs, {self.residents} on a multiprocessor; 1 at least")
        if min(self.lead, self.early_bytes, self.late_bytes, self.follow, self.release or 0.0) < 0:
            raise ValueError(f"{self.name}: latencies and bytes cannot be below 0")


class Ran(NamedTuple):
    """One program: its launch's index, its own, where, and its moments in ns from the first admission."""

    launch: int
    program: int
    sm: int
    begin: float
    wait_end: float
    done: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """ns from the first admission; when each launch's first wait was over, and when it ended; and all programs."""

    duration: float
    released: tuple[float, ...]
    ended: tuple[float, ...]
    programs: tuple[Ran, ...]


def simulate(launches: Sequence[Launch], machine: Machine, mode: Mode) -> Outcome:
    """ValueError for no launches at all, and for a program that needs one that is not in the launch before it."""
    if not launches:
        raise ValueError("a step without launches")
    run = _Run(launches, machine, mode)
    while run.step():
        pass
    if stuck := [launch.name for launch, left in zip(launches, run.unfinished, strict=True) if left]:
        raise ValueError(f"{stuck[0]} waits for programs that the launch before it does not have")
    programs = tuple(sorted(run.ran))
    released = [math.inf] * len(launches)
    for ran in programs:
        released[ran.launch] = min(released[ran.launch], ran.wait_end)
    return Outcome(max(run.ended), tuple(released), tuple(run.ended), programs)


_LED, _FOLLOWED, _RELEASED, _ADMIT = range(4)


class _Run:
    """A program is (launch, program). It goes on with its late part when both its early bytes and its wait are over."""

    def __init__(self, launches: Sequence[Launch], machine: Machine, mode: Mode) -> None:
        self.launches, self.machine, self.mode = launches, machine, mode
        self.now = 0.0
        self.events: list[tuple[float, int, int, int, int]] = []  # time, order, what, launch, program
        self.order = 0
        self.memory = _SharedMemory(machine.bandwidth)
        # Room in whole units, so that no rounding lets one program too many in: a program of n residents takes 1 / n.
        self.units = math.lcm(*(launch.residents for launch in launches if launch.residents))
        self.sizes = [self.units // launch.residents if launch.residents else 0 for launch in launches]
        self.releases = [machine.release if launch.release is None else launch.release for launch in launches]
        self.room = [(-self.units, sm) for sm in range(machine.multiprocessors)]
        self.free = [self.units] * machine.multiprocessors
        self.admitted: dict[tuple[int, int], tuple[int, float]] = {}  # multiprocessor, moment
        self.waited: dict[tuple[int, int], float] = {}
        self.ran: list[Ran] = []
        self.next = (0, 0)
        self.admissible = 0  # launches before this one may be admitted
        self.unfinished = [launch.programs for launch in launches]
        self.pending = [[2] * launch.programs for launch in launches]  # early bytes, wait
        self.missing: list[list[int]] = [[0] * launch.programs for launch in launches]
        self.dependents: dict[tuple[int, int], list[int]] = {}
        self.ended = [0.0] * len(launches)
        self._allow(0, at=0.0)
        if mode == "tiles":
            self._link()
        for program in range(launches[0].programs):
            self._after(0.0, _RELEASED, 0, program)

    def step(self) -> bool:
        """The next thing that happens; False when nothing is left."""
        transfer = self.memory.next_end(self.now)
        event = self.events[0][0] if self.events else math.inf
        if math.isinf(transfer) and math.isinf(event):
            return False
        if transfer <= event:
            self.now = transfer
            launch, program, early = self.memory.finish(transfer)
            if early:
                self._ready(launch, program)
            else:
                self._after(self.launches[launch].follow, _FOLLOWED, launch, program)
            return True
        self.now, _, what, launch, program = heapq.heappop(self.events)
        if what == _LED:
            self._transfer(launch, program, early=True)
        elif what == _RELEASED:
            self.waited[launch, program] = self.now
            self._ready(launch, program)
        elif what == _ADMIT:
            self.admissible = max(self.admissible, launch + 1)
            self._admit()
        else:
            self._end(launch, program)
        return True

    def _after(self, delay: float, what: int, launch: int, program: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (self.now + delay, self.order, what, launch, program))

    def _allow(self, launch: int, *, at: float) -> None:
        if launch < len(self.launches):
            self._after(at, _ADMIT, launch, 0)

    def _admit(self) -> None:
        """In order, as long as there is room: nothing overtakes a program that does not fit yet."""
        launch, program = self.next
        while launch < self.admissible and launch < len(self.launches):
            size = self.sizes[launch]
            sm = self._roomiest()
            if self.free[sm] < size:
                break
            self._take(sm, size)
            self.admitted[launch, program] = sm, self.now
            self._after(self.launches[launch].lead, _LED, launch, program)
            program += 1
            if program == self.launches[launch].programs:
                launch, program = launch + 1, 0
                if self.mode != "graph":
                    self._allow(launch, at=self.machine.trigger)
        self.next = (launch, program)

    def _roomiest(self) -> int:
        while -self.room[0][0] != self.free[self.room[0][1]]:
            heapq.heappop(self.room)
        return self.room[0][1]

    def _take(self, sm: int, size: int) -> None:
        self.free[sm] -= size
        heapq.heappush(self.room, (-self.free[sm], sm))

    def _transfer(self, launch: int, program: int, *, early: bool) -> None:
        of = self.launches[launch]
        self.memory.start(self.now, of.early_bytes if early else of.late_bytes, (launch, program, early))

    def _ready(self, launch: int, program: int) -> None:
        self.pending[launch][program] -= 1
        if not self.pending[launch][program]:
            self._transfer(launch, program, early=False)

    def _end(self, launch: int, program: int) -> None:
        self.ended[launch] = self.now
        self.unfinished[launch] -= 1
        sm, begin = self.admitted.pop((launch, program))
        waited = max(begin, self.waited.pop((launch, program)))
        self.ran.append(Ran(launch, program, sm, begin, waited, self.now))
        self._take(sm, -self.sizes[launch])
        if self.mode == "tiles":
            for dependent in self.dependents.pop((launch, program), ()):
                self._arrive(launch + 1, dependent)
        if not self.unfinished[launch] and launch + 1 < len(self.launches):
            self._launch_ended(launch)
        self._admit()

    def _launch_ended(self, launch: int) -> None:
        following = launch + 1
        if self.mode == "graph":
            self._allow(following, at=self.machine.gap)
        delay = 0.0 if self.mode == "graph" else self.releases[following]
        for program in range(self.launches[following].programs):
            if self.mode != "tiles":
                self._after(delay, _RELEASED, following, program)
            elif self.missing[following][program] < 0:
                self.missing[following][program] = 0
                self._after(delay, _RELEASED, following, program)

    def _link(self) -> None:
        """Who waits for whom; -1 missing: for the whole launch before."""
        for launch in range(1, len(self.launches)):
            for program in range(self.launches[launch].programs):
                needed = self.launches[launch].producers(program)
                if needed is None:
                    self.missing[launch][program] = -1
                    continue
                tiles = sorted({tile for tiles in needed for tile in tiles})
                if not tiles:
                    self._after(0.0, _RELEASED, launch, program)
                self.missing[launch][program] = len(tiles)
                for tile in tiles:
                    self.dependents.setdefault((launch - 1, tile), []).append(program)

    def _arrive(self, launch: int, program: int) -> None:
        self.missing[launch][program] -= 1
        if not self.missing[launch][program]:
            self._after(self.releases[launch], _RELEASED, launch, program)


class _SharedMemory:
    """Transfers that share a bandwidth equally (processor sharing), by a virtual clock of bytes that each has got."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._got = 0.0
        self._at = 0.0
        self._active: list[tuple[float, int, tuple[int, int, bool]]] = []
        self._order = 0

    def start(self, now: float, size: float, who: tuple[int, int, bool]) -> None:
        self._advance(now)
        self._order += 1
        heapq.heappush(self._active, (self._got + size, self._order, who))

    def next_end(self, now: float) -> float:
        if not self._active:
            return math.inf
        return max(now, self._at + (self._active[0][0] - self._got) * len(self._active) / self._bandwidth)

    def finish(self, now: float) -> tuple[int, int, bool]:
        end = self._active[0][0]
        self._advance(now)
        self._got = max(self._got, end)  # not a rounding less
        return heapq.heappop(self._active)[2]

    def _advance(self, now: float) -> None:
        if self._active:
            self._got = min(self._got + (now - self._at) * self._bandwidth / len(self._active), self._active[0][0])
        self._at = now
