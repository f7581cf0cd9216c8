"""Virtual time: threads of simulated hosts, which share cores and wait for each other, and the network between hosts.

Code of the run time runs at once, in no time. What it does that others notice, such as to send a message, happens later:
once the simulated thread has spent the time of the work before. `Thread.collect` gathers these effects.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from singa_dask.cancellation import Cancellation
from singa_dask.planner.model import Cluster, Costs, Host
from singa_dask.planner.phantoms import Meter

Effect = Callable[[], None]


class Clock:
    """Calls functions in the order of their times, in seconds.

    Parameters
    ----------
    costs : Costs
    meter : Meter
    trace : bool
        Whether to keep `events`.

    Attributes
    ----------
    now : float
    script : list of (float, Effect), or None
        Effects of the code that runs now, each after some seconds of work; None outside of `Thread.collect`.
    events : list of (Thread, str, float, float)
        What threads have done, from when to when.
    """

    def __init__(self, costs: Costs, meter: Meter, trace: bool) -> None:
        self.costs, self.meter = costs, meter
        self.now = 0.0
        self.script: list[tuple[float, Effect]] | None = None
        self.thread: Thread | None = None
        self.events: list[tuple[Thread, str, float, float]] | None = [] if trace else None
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
        if self.script is None or self.thread is None:
            call()
        else:
            self.script.append((self.thread.spent(), call))

    def run(self) -> None:
        """Call all functions, also those that they add."""
        while self._calls:
            self.now, _, call = heapq.heappop(self._calls)
            call()


class Cores:
    """The cores of a host, which its threads share equally.

    ``_work`` is how many seconds of a core every thread that runs has had since the start.
    """

    def __init__(self, clock: Clock, host: Host) -> None:
        self.clock, self.host = clock, host
        self._work = self._since = 0.0
        self._n_running = self._n_starts = self._n_plans = 0
        self._ends: list[tuple[float, int, int, Effect]] = []

    def n_busy(self, more: int) -> int:
        """Return how many cores are busy if ``more`` threads run."""
        return min(self.host.n_cores, self._n_running + more)

    def run(self, n_threads: int, seconds: float, then: Effect) -> None:
        """Run ``n_threads`` for some seconds of a core of speed 1 each, and call a function."""
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
        self._n_plans += 1
        if self._ends:
            plan, left = self._n_plans, max(self._ends[0][0] - self._work, 0.0)
            self.clock.after(left / self._rate, lambda: self._end(plan))

    def _end(self, plan: int) -> None:
        if plan != self._n_plans:
            return
        self._advance()
        end, _, n_threads, then = heapq.heappop(self._ends)
        self._work = end  # without what rounding has left
        self._n_running -= n_threads
        self._plan()
        then()


class Thread:
    """What all simulated threads share.

    Parameters
    ----------
    name : str
    process : int
    cores : Cores

    Attributes
    ----------
    busy_s : float
        For how long it has run.
    """

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        self.name, self.process, self.cores = name, process, cores
        self.clock = cores.clock
        self.busy_s = 0.0

    def spent(self) -> float:
        """Return the seconds of the work that was counted since the last call."""
        meter, costs, n_busy = self.clock.meter, self.clock.costs, self.cores.n_busy(1)
        seconds = meter.n_messages * costs.handled_s
        if meter.n_bytes:
            seconds += meter.n_bytes * costs.copied_byte_s(n_busy)
        seconds += sum(costs.update_s(sizes, n_busy) for sizes in meter.updates)
        meter.clear()
        return seconds

    def collect(self, code: Effect) -> list[tuple[float, Effect]]:
        """Run code; return its effects, each with the seconds of work before it."""
        clock = self.clock
        clock.script, clock.thread = script, _ = [], self
        code()
        script.append((self.spent(), _nothing))
        clock.script = clock.thread = None
        return script

    def run(self, what: str, n_threads: int, seconds: float, then: Effect) -> None:
        """Spend time, and call a function."""
        if not seconds:
            self.clock.after(0.0, then)
            return
        started = self.clock.now

        def end() -> None:
            self.busy_s += self.clock.now - started
            if self.clock.events is not None:
                self.clock.events.append((self, what, started, self.clock.now))
            then()

        self.cores.run(n_threads, seconds, end)


def _nothing() -> None:
    pass


class SerialThread(Thread):
    """A thread that takes one job after the other: that of a server, or the one for the messages of a process."""

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        super().__init__(name, process, cores)
        self._jobs: deque[tuple[str, float, Effect, Effect]] = deque()
        self._is_idle = True

    def put(self, what: str, seconds: float, code: Effect, wake_s: float, begin: Effect = _nothing) -> None:
        """Add a job: call ``begin``, spend time, run code, whose effects follow; after ``wake_s`` if it was idle."""
        self._jobs.append((what, seconds, code, begin))
        if self._is_idle:
            self._is_idle = False
            self.clock.after(wake_s, self._next)

    def _next(self) -> None:
        if not self._jobs:
            self._is_idle = True
            return
        what, seconds, code, begin = self._jobs.popleft()
        begin()
        self.run(what, 1, seconds, lambda: self._play(what, deque(self.collect(code))))

    def _play(self, what: str, script: deque[tuple[float, Effect]]) -> None:
        while script:
            seconds, effect = script.popleft()
            if seconds:
                script.appendleft((0.0, effect))
                self.run(what, 1, seconds, lambda: self._play(what, script))
                return
            effect()
        self._next()


class _Stopped(BaseException):
    """Ends the code of a thread whose simulation has failed."""


class CodeThread(Thread):
    """A thread that runs code which waits within its calls, as that of a worker does.

    It is a thread of this process, too, and runs while the clock stands.

    Parameters
    ----------
    code : callable
    """

    def __init__(self, name: str, process: int, cores: Cores, code: Effect) -> None:
        super().__init__(name, process, cores)
        self.is_done = False
        self._code = code
        self._error: BaseException | None = None
        self._is_stopped = False
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        self._go.acquire()
        try:
            if not self._is_stopped:
                self._code()
        except _Stopped:
            pass
        except BaseException as error:
            self._error = error
        self.is_done = True
        self._back.release()

    def resume(self) -> None:
        """Run the code until it waits; called by the clock."""
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
        if not self.is_done:
            self._is_stopped = True
            self._go.release()
        self._thread.join()

    def compute(self, what: str, n_threads: int, seconds: float) -> None:
        """Spend time, that of the work so far too; called by the code."""
        for n, each in ((1, self.spent()), (n_threads, seconds)):
            if each:
                self.run(what, n, each, self.resume)
                self.pause()

    def play(self, code: Effect) -> None:
        """Run a part of the code that does not wait, and its effects; called by the code."""
        self.compute("exchange", 1, 0.0)
        for seconds, effect in self.collect(code):
            self.compute("exchange", 1, seconds)
            effect()


class VirtualWait(Cancellation):
    """Where the code of a thread waits.

    Attributes
    ----------
    waited_s : float
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.condition: Any = self  # nobody else has it
        self.thread: CodeThread | None = None
        self.waited_s = 0.0
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
        if self._until is not None and self.thread is not None and self._until():
            self._until = None
            self._clock.after(self._clock.costs.woken_s, self.thread.resume)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        thread = self.thread
        assert thread is not None
        thread.compute("exchange", 1, 0.0)
        if condition():
            return
        started, self._until = self._clock.now, condition
        thread.pause()
        self.waited_s += self._clock.now - started


class Network:
    """Connections between processes: of two hosts by their interfaces, within a host each by itself.

    Attributes
    ----------
    busy_s : dict
        For how long each way has been busy.
    """

    def __init__(self, clock: Clock, cluster: Cluster) -> None:
        self._clock, self._cluster = clock, cluster
        self._free_at: dict[tuple[Any, ...], float] = {}
        self.busy_s: dict[tuple[Any, ...], float] = {}

    def carry(self, src: int, dst: int, n_bytes: int, then: Effect) -> None:
        """Carry bytes from one process to another one, and call a function."""
        clock, hosts = self._clock, self._cluster.host_of
        if hosts[src] == hosts[dst]:
            link = self._cluster.within
            _, end = self._occupy(("within", src, dst), n_bytes / link.bytes_per_s)
            clock.at(end + link.latency_s, then)
            return
        link = self._cluster.between
        seconds = n_bytes / link.bytes_per_s
        start, _ = self._occupy(("out", hosts[src]), seconds)
        clock.at(start + link.latency_s, lambda: clock.at(self._occupy(("in", hosts[dst]), seconds)[1], then))

    def _occupy(self, way: tuple[Any, ...], seconds: float) -> tuple[float, float]:
        """Use a way once it is free; return from when to when."""
        start = max(self._clock.now, self._free_at.get(way, -math.inf))
        self._free_at[way] = start + seconds
        self.busy_s[way] = self.busy_s.get(way, 0.0) + seconds
        return start, start + seconds
