"""Virtual time: threads of simulated hosts, which share cores and wait for each other, and the network between hosts.

Code of the run time runs in no time. Its effects, what others notice, happen later: once its simulated thread has spent
the time of the work before. `Thread.collect` gathers them.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from singa_dask.cancellation import Cancellation
from singa_dask.planner.model import Cluster, Costs, Link, Machine
from singa_dask.planner.phantoms import Meter

Effect = Callable[[], None]
Script = list[tuple[float, Effect]]
"""Effects, each with the seconds of work before it."""


class VirtualClock:
    """Calls functions in the order of their times; ``events``, if kept: thread, what it did, from when to when."""

    def __init__(self, costs: Costs, meter: Meter, trace: bool = False) -> None:
        self.costs, self.meter, self.now = costs, meter, 0.0
        self.events: list[tuple[Thread, str, float, float]] | None = [] if trace else None
        self.thread: Thread | None = None  # whose code runs now, and its effects so far
        self.script: Script = []
        self.n_running = Counter[int]()  # threads of each process
        self._calls: list[tuple[float, int, Effect]] = []
        self._n_calls = 0

    def at(self, time_s: float, call: Effect) -> None:
        """Call a function at a time."""
        self._n_calls += 1
        heapq.heappush(self._calls, (time_s, self._n_calls, call))

    def after(self, seconds: float, call: Effect) -> None:
        """Call a function after some time."""
        self.at(self.now + seconds, call)

    def effect(self, call: Effect) -> None:
        """Call a function once the thread whose code runs now has spent the time of its work so far."""
        if self.thread is None:
            call()
        else:
            self.script.append((self.thread.spent(), call))

    def run(self) -> None:
        """Call all functions, also those that they add."""
        while self._calls:
            self.now, _, call = heapq.heappop(self._calls)
            call()


class Cores:
    """The cores of a host. All its threads that run are equally fast."""

    def __init__(self, clock: VirtualClock, host: Machine) -> None:
        self.clock, self.host = clock, host
        self._work = self._since = 0.0  # seconds of a core that each running thread has had, and up to when
        self._n_running = self._n_starts = 0
        self._ends: list[tuple[float, int, int, Effect]] = []
        self._planned = object()

    def n_busy(self, more: int) -> int:
        """Return how many cores are busy if ``more`` threads run."""
        return min(self.host.n_cores, self._n_running + more)

    def run(self, n_threads: int, seconds: float, then: Effect) -> None:
        """Run ``n_threads`` threads, for some seconds of a core of speed 1 each, and call a function."""
        self._advance()
        self._n_running += n_threads
        self._n_starts += 1
        heapq.heappush(self._ends, (self._work + seconds, self._n_starts, n_threads, then))
        self._plan()

    @property
    def _rate(self) -> float:
        return self.host.speed * min(1.0, self.host.n_cores / max(self._n_running, 1))

    def _advance(self) -> None:
        self._work += (self.clock.now - self._since) * self._rate
        self._since = self.clock.now

    def _plan(self) -> None:
        """Plan the next end, in place of the one that was planned before."""
        self._planned = plan = object()
        if self._ends:
            self.clock.after(max(self._ends[0][0] - self._work, 0.0) / self._rate, lambda: self._end(plan))

    def _end(self, plan: object) -> None:
        if plan is self._planned:
            self._advance()
            self._work, _, n_threads, then = heapq.heappop(self._ends)
            self._n_running -= n_threads
            self._plan()
            then()


class Thread:
    """A simulated thread; ``busy_s``: for how long it has run."""

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        self.name, self.process, self.cores, self.clock = name, process, cores, cores.clock
        self.busy_s = 0.0

    def spent(self) -> float:
        """Return the seconds of the work that was metered since the last call."""
        return self.clock.meter.take_s(self.clock.costs, self.cores.n_busy(1))

    def collect(self, code: Effect) -> Script:
        """Run code of this thread; return its effects."""
        clock, script = self.clock, Script()
        clock.thread, clock.script = self, script
        code()
        clock.effect(lambda: None)
        clock.thread = None
        return script

    def run(self, what: str, n_threads: int, seconds: float, then: Effect) -> None:
        """Spend time, and call a function."""
        started, n_running = self.clock.now, self.clock.n_running
        n_running[self.process] += 1

        def end() -> None:
            n_running[self.process] -= 1
            self.busy_s += self.clock.now - started
            if self.clock.events is not None:
                self.clock.events.append((self, what, started, self.clock.now))
            then()

        self.cores.run(n_threads, seconds, end)


class SerialThread(Thread):
    """A thread that takes one job after the other: that of a server, or the one for the messages of a process."""

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        super().__init__(name, process, cores)
        self._jobs: deque[tuple[str, float, Effect, Effect]] = deque()
        self._life: Iterator[tuple[str, float]] | None = None

    def put(self, what: str, seconds: float, begin: Effect, code: Effect, wake_s: float = 0.0) -> None:
        """Add a job: call ``begin``, spend time, run code. If the thread is idle it first takes time to wake up."""
        self._jobs.append((what, seconds, begin, code))
        if self._life is None:
            self._life = self._live()
            self.clock.after(wake_s, self._go_on)

    def _live(self) -> Iterator[tuple[str, float]]:
        """Do all jobs; yield what takes how long."""
        while self._jobs:
            what, seconds, begin, code = self._jobs.popleft()
            begin()
            yield what, seconds
            for more, effect in self.collect(code):
                yield what, more
                effect()
        self._life = None

    def _go_on(self) -> None:
        for what, seconds in self._life or ():
            if seconds:
                self.run(what, 1, seconds, self._go_on)
                return


class _Stopped(BaseException):
    """Ends the code of a thread whose simulation has failed."""


class CodeThread(Thread):
    """A thread whose code waits within its calls, as that of a worker does; a real thread, too.

    Either its code runs, or the clock does.
    """

    def __init__(self, name: str, process: int, cores: Cores, code: Effect) -> None:
        super().__init__(name, process, cores)
        self._code = code
        self._error: BaseException | None = None
        self._is_done = self._is_stopped = False
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def _live(self) -> None:
        self._go.acquire()
        try:
            self._code()
        except BaseException as error:
            self._error = error
        self._is_done = True
        self._back.release()

    def resume(self) -> None:
        """Run the code until it waits; called by the clock."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Wait until somebody calls `resume`; called by the code."""
        self._back.release()
        self._go.acquire()
        if self._is_stopped:
            raise _Stopped

    def stop(self) -> None:
        """End the code, wherever it waits."""
        if self._thread.ident is not None and not self._is_done:
            self._is_stopped = True
            self._go.release()
            self._thread.join()

    def compute(self, what: str, n_threads: int, seconds: float) -> None:
        """Spend the time of the work so far, and more; called by the code."""
        for n, each in ((1, self.spent()), (n_threads, seconds)):
            if each:
                self.run(what, n, each, self.resume)
                self.pause()

    def play(self, code: Effect) -> None:
        """Run a part of the code that does not wait, and its effects; called by the code."""
        for seconds, effect in self.collect(code):
            self.compute("exchange", 1, seconds)
            effect()


class VirtualWait(Cancellation):
    """Where the code of ``thread`` waits; ``waited_s``: for how long it has."""

    thread: CodeThread

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.waited_s = 0.0
        self.condition: Any = self  # no other thread runs
        self._clock = clock
        self._until: Callable[[], bool] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def notify_all(self) -> None:
        """Look whether the thread can go on."""
        self._clock.effect(self._look)

    def _look(self) -> None:
        if self._until is not None and self._until():
            self._until = None
            self._clock.after(self._clock.costs.woken_s, self.thread.resume)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.thread.compute("exchange", 1, 0.0)
        if not condition():
            started, self._until = self._clock.now, condition
            self.thread.pause()
            self.waited_s += self._clock.now - started


class Network:
    """Connections between processes: of two hosts by their interfaces, within a host each by itself.

    ``busy_s``: for how long each way has been busy.
    """

    def __init__(self, clock: VirtualClock, cluster: Cluster) -> None:
        self._clock, self._cluster = clock, cluster
        self._free_at, self.busy_s = defaultdict[Any, float](float), defaultdict[Any, float](float)

    def link(self, src: int, dst: int) -> Link:
        """Return what connects two processes."""
        hosts = self._cluster.host_of
        return self._cluster.within if hosts[src] == hosts[dst] else self._cluster.between

    def carry(self, src: int, dst: int, n_bytes: int, then: Effect) -> None:
        """Carry bytes from one process to another one, and call a function."""
        hosts, link = self._cluster.host_of, self.link(src, dst)
        seconds = n_bytes / link.bytes_per_s
        if hosts[src] == hosts[dst]:
            self._clock.at(self._occupy(("within", src, dst), seconds) + link.latency_s, then)
            return
        start = self._occupy(("out", hosts[src]), seconds) - seconds
        take = partial(self._occupy, ("in", hosts[dst]), seconds)
        self._clock.at(start + link.latency_s, lambda: self._clock.at(take(), then))

    def read(self, cores: Cores, n_bytes: float, then: Effect) -> None:
        """Read bytes of records on a host, one batch after the other, and call a function."""
        rate = self._cluster.read_bytes_per_s
        self._clock.at(self._occupy(("read", cores), n_bytes / rate if rate else 0.0), then)

    def _occupy(self, way: object, seconds: float) -> float:
        """Use a way once it is free; return until when."""
        self._free_at[way] = max(self._clock.now, self._free_at[way]) + seconds
        self.busy_s[way] += seconds
        return self._free_at[way]
