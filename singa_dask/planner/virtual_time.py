"""Virtual time: threads of simulated hosts that share cores, and the network between hosts.

Real code of the runtime runs, but its real time does not count. Each piece of work has a cost in virtual time. An
effect of the code on other threads, such as a message, happens once the simulated thread has spent the cost of all work
before the effect. `Thread.collect` collects these effects.
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
"""Effects in order, each with the seconds of work that precede it."""

TURN_S = 0.008
"""Seconds for which a thread runs while other threads wait for its core: two ticks of the Linux kernel, which agrees
best with measurements."""
COLD_S = 0.002
"""Seconds for which a thread waits for its own core although another core is free: half a tick of the kernel, on
average."""


class VirtualClock:
    """Calls functions in the order of their virtual times.

    ``events`` has (thread, name of the work, start, end) for each piece of work; None without ``trace``.
    """

    def __init__(self, costs: Costs, meter: Meter, trace: bool = False) -> None:
        self.costs, self.meter, self.now = costs, meter, 0.0
        self.events: list[tuple[Thread, str, float, float]] | None = [] if trace else None
        self.thread: Thread | None = None  # the thread whose code runs now; its effects so far are in `script`
        self.script: Script = []
        self.n_running = Counter[int]()  # process -> number of its running threads
        self._calls: list[tuple[float, int, Effect]] = []
        self._n_calls = 0

    def at(self, time_s: float, call: Effect) -> None:
        """Schedule a call at a virtual time."""
        self._n_calls += 1
        heapq.heappush(self._calls, (time_s, self._n_calls, call))

    def after(self, seconds: float, call: Effect) -> None:
        """Schedule a call after some virtual seconds."""
        self.at(self.now + seconds, call)

    def effect(self, call: Effect) -> None:
        """Schedule a call after the work that the current thread has done so far.

        The current thread is the thread whose code runs now. Without such a thread, call the function immediately.
        """
        if self.thread is None:
            call()
        else:
            self.script.append((self.thread.spent(), call))

    def run(self) -> None:
        """Make all scheduled calls, including calls that they schedule themselves."""
        while self._calls:
            self.now, _, call = heapq.heappop(self._calls)
            call()


class _Task:
    """Work of one or several threads.

    ``left_s`` is the remaining work of each thread, in seconds of a core of speed 1.
    """

    def __init__(self, thread: Thread, n_threads: int, left_s: float, then: Effect) -> None:
        self.thread, self.n_threads, self.left_s, self.then = thread, n_threads, left_s, then
        self.stopped_at = 0.0


class _Slot:
    """Some cores and the tasks on them. The first task runs, and the others wait.

    Attributes
    ----------
    since : float
        Time at which the work of the first task was last recorded.
    turn : float
        Time at which the turn of the first task began.
    planned : int
        Number of the newest scheduled end of the task or its turn. Ends with older numbers are ignored.
    n_shared : int
        Number of this slot's cores that are shared, each with another slot of one core.
    sharer : _Slot or None
        For a slot of one shared core, the other slot that has this core.
    """

    def __init__(self, n_cores: int = 0, sharer: _Slot | None = None) -> None:
        self.n_cores, self.tasks, self.since, self.turn, self.planned = n_cores, deque[_Task](), 0.0, 0.0, 0
        self.n_shared, self.sharer = 0, sharer

    @property
    def rate(self) -> float:
        """Speed of the first task.

        The speed is at most half if one thread of the task shares a core, because all other threads wait for that
        thread.
        """
        n_threads = self.tasks[0].n_threads
        is_shared = self.n_cores - n_threads < self.n_shared > 0
        return min((self.n_cores - self.n_shared) / n_threads, 0.5 if is_shared else 1.0)

    @property
    def can_share(self) -> bool:
        """Whether the slot can share another core, and keep at least one for itself."""
        return self.n_shared < self.n_cores - 1

    @property
    def load(self) -> int:
        """Number of threads that already use the core that this slot would give to a waking thread."""
        return len(self.tasks) + (self.sharer is not None or (self.n_shared > 0 and not self.can_share))


class Cores:
    """The cores of a host, and a scheduler of threads that imitates Linux.

    A waking thread gets a free core. If no core is free, the thread interrupts another thread, which continues later.
    Threads on the same core take turns of `TURN_S` seconds. A thread that has waited for `COLD_S` seconds moves to a
    free core. A group of threads that wait for each other uses the free cores; a single thread may share one of these
    cores.
    """

    def __init__(self, clock: VirtualClock, host: Machine) -> None:
        self.clock, self.host = clock, host
        self._n_free, self._slots = host.n_cores, list[_Slot]()
        # the thread whose work has just ended, and its slot, in which the thread may continue with new work
        self._ended: tuple[Thread, _Slot] | None = None

    def n_busy(self, more: int) -> int:
        """Return the number of busy cores if ``more`` threads run in addition to the threads that run now."""
        return min(self.host.n_cores, self.host.n_cores - self._n_free + more)

    def run(self, thread: Thread, n_threads: int, seconds: float, then: Effect) -> None:
        """Run ``n_threads`` threads, each for some seconds of a core of speed 1; then call ``then``."""
        task = _Task(thread, n_threads, seconds, then)
        goes_on = False
        if self._ended and self._ended[0] is thread:
            (_, slot), self._ended, goes_on = self._ended, None, True
        elif self._n_free or not self._slots:
            slot = self._add()
        else:
            slot = min(self._slots, key=lambda each: (each.load, each.since))
            if n_threads == 1 and slot.can_share:
                slot = self._share(slot)
            else:
                self._stop(slot)
        slot.tasks.appendleft(task)
        self._start(slot, goes_on)

    def _add(self) -> _Slot:
        slot = _Slot()
        self._slots.append(slot)
        return slot

    def _start(self, slot: _Slot, goes_on: bool = False) -> None:
        """Give a slot the cores that its first task needs, and plan the end of this task or of its turn."""
        wanted = max(slot.n_shared + 1, *(task.n_threads for task in slot.tasks))
        n = min(wanted - slot.n_cores, self._n_free)
        slot.n_cores += n
        self._n_free -= n
        slot.since = self.clock.now
        slot.turn = slot.turn if goes_on else self.clock.now
        slot.planned += 1
        planned, change = slot.planned, self._end
        seconds = max(slot.tasks[0].left_s, 0.0) / (self.host.speed * slot.rate)
        left_s = max(slot.turn + TURN_S - self.clock.now, 0.0)
        if len(slot.tasks) > 1 and seconds > left_s + 1e-9:  # ignore differences that are only rounding errors
            seconds, change = left_s, self._turn

        def end() -> None:
            if planned == slot.planned:
                change(slot)

        self.clock.after(seconds, end)

    def _share(self, slot: _Slot) -> _Slot:
        """Return a new slot that shares a core of another slot. The task of the other slot continues."""
        self._change_shared(slot, 1)
        self._slots.append(_Slot(1, slot))
        return self._slots[-1]

    def _change_shared(self, slot: _Slot, n: int) -> None:
        self._record_work(slot)
        slot.n_shared += n
        self._start(slot, goes_on=True)

    def _record_work(self, slot: _Slot) -> None:
        """Subtract the work that the first task of a slot has done since the last call."""
        slot.tasks[0].left_s -= (self.clock.now - slot.since) * self.host.speed * slot.rate
        slot.since = self.clock.now

    def _stop(self, slot: _Slot) -> None:
        """Pause the first task of a slot until its cores are free, or other cores after `COLD_S`."""
        self._record_work(slot)
        slot.tasks[0].stopped_at = self.clock.now
        self.clock.after(COLD_S, lambda: self._move_from(slot))

    def _turn(self, slot: _Slot) -> None:
        self._stop(slot)
        slot.tasks.rotate(-1)
        self._start(slot)

    def _end(self, slot: _Slot) -> None:
        task = slot.tasks.popleft()
        self._ended = (task.thread, slot)
        task.then()
        if self._ended is None:
            return  # the thread of this slot continues
        self._ended = None
        if slot.tasks:
            self._start(slot)
        else:
            self._close(slot)
        for other in list(self._slots):
            self._move_from(other)

    def _close(self, slot: _Slot) -> None:
        """Free the cores of a slot that has no tasks. A shared core goes back to the slot that shares it."""
        self._slots.remove(slot)
        if slot.sharer is not None:
            self._change_shared(slot.sharer, -1)
            return
        self._n_free += slot.n_cores - slot.n_shared
        for each in self._slots:
            each.sharer = None if each.sharer is slot else each.sharer

    def _move_from(self, slot: _Slot) -> None:
        """Give free cores to tasks that have waited for `COLD_S` at a slot."""
        for task in list(slot.tasks)[1:]:
            has_waited = self.clock.now - task.stopped_at >= 0.999 * COLD_S
            if has_waited and self._n_free >= min(task.n_threads, self.host.n_cores):
                slot.tasks.remove(task)
                free = self._add()
                free.tasks.append(task)
                self._start(free)


class Thread:
    """A simulated thread. ``busy_s`` is the total time for which the thread has run."""

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        self.name, self.process, self.cores, self.clock = name, process, cores, cores.clock
        self.busy_s = 0.0

    def spent(self) -> float:
        """Return the seconds of the work that was counted since the last call."""
        return self.clock.meter.take_s(self.clock.costs, self.cores.n_busy(1))

    def collect(self, code: Effect) -> Script:
        """Run code in the name of this thread; return the effects of the code on other threads."""
        clock, script = self.clock, Script()
        clock.thread, clock.script = self, script
        code()
        clock.effect(lambda: None)
        clock.thread = None
        return script

    def run(self, what: str, n_threads: int, seconds: float, then: Effect) -> None:
        """Run for some seconds on ``n_threads`` cores, then call ``then``. ``what`` names the work in events."""
        started, n_running = self.clock.now, self.clock.n_running
        n_running[self.process] += 1

        def end() -> None:
            n_running[self.process] -= 1
            self.busy_s += self.clock.now - started
            if self.clock.events is not None:
                self.clock.events.append((self, what, started, self.clock.now))
            then()

        self.cores.run(self, n_threads, seconds, end)


class SerialThread(Thread):
    """A thread with a queue of jobs, such as the thread of a server or the message thread of a process."""

    def __init__(self, name: str, process: int, cores: Cores) -> None:
        super().__init__(name, process, cores)
        self._jobs: deque[tuple[str, float, Effect, Effect]] = deque()
        self._life: Iterator[tuple[str, float]] | None = None

    def put(self, what: str, seconds: float, begin: Effect, code: Effect, wake_s: float = 0.0) -> None:
        """Add a job to the queue: call ``begin``, spend ``seconds``, then run ``code``.

        A thread that is idle first takes ``wake_s`` seconds to wake up.
        """
        self._jobs.append((what, seconds, begin, code))
        if self._life is None:
            self._life = self._live()
            self.clock.after(wake_s, self._go_on)

    def _live(self) -> Iterator[tuple[str, float]]:
        """Do all jobs in the queue; yield the name and the seconds of each piece of work."""
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
    """A simulated thread that blocks in calls, such as a worker. Its code runs in a real thread.

    The code of the thread and the clock never run at the same time.
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
        """Run the code until it waits. Called by the clock."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Wait until the clock calls `resume`. Called by the code."""
        self._back.release()
        self._go.acquire()
        if self._is_stopped:
            raise _Stopped

    def stop(self) -> None:
        """End the code by an exception that is raised where the code waits."""
        if self._thread.ident is not None and not self._is_done:
            self._is_stopped = True
            self._go.release()
            self._thread.join()

    def compute(self, what: str, n_threads: int, seconds: float) -> None:
        """Spend the time of the work counted so far, then ``seconds`` on ``n_threads`` cores.

        The code of the thread calls this method.
        """
        for n, each in ((1, self.spent()), (n_threads, seconds)):
            if each:
                self.run(what, n, each, self.resume)
                self.pause()

    def play(self, code: Effect) -> None:
        """Run code that does not wait; spend the time of its work and schedule its effects.

        The code of the thread calls this method.
        """
        for seconds, effect in self.collect(code):
            self.compute("exchange", 1, seconds)
            effect()


class VirtualWait(Cancellation):
    """Waits of a simulated thread for one cause, such as params. ``waited_s`` is their total duration."""

    thread: CodeThread

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.waited_s = 0.0
        self.condition: Any = self  # this object is its own condition, because no other thread runs
        self._clock = clock
        self._until: Callable[[], bool] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def notify_all(self) -> None:
        """Continue the thread if its condition is now true."""
        self._clock.effect(self._check)

    def _check(self) -> None:
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
    """The network between processes.

    All processes of a host share its network interface; connections within a host do not affect each other. ``busy_s``
    has the total time for which each direction of an interface or connection has been busy.
    """

    def __init__(self, clock: VirtualClock, cluster: Cluster) -> None:
        self._clock, self._cluster = clock, cluster
        self._free_at, self.busy_s = defaultdict[Any, float](float), defaultdict[Any, float](float)

    def link(self, src: int, dst: int) -> Link:
        """Return the link between two processes."""
        hosts = self._cluster.host_of
        return self._cluster.within if hosts[src] == hosts[dst] else self._cluster.between

    def carry(self, src: int, dst: int, n_bytes: int, then: Effect) -> None:
        """Carry bytes from one process to another; call ``then`` when they have arrived."""
        hosts, link = self._cluster.host_of, self.link(src, dst)
        seconds = n_bytes / link.bytes_per_s
        if hosts[src] == hosts[dst]:
            self._clock.at(self._occupy(("within", src, dst), seconds) + link.latency_s, then)
            return
        start = self._occupy(("out", hosts[src]), seconds) - seconds
        take = partial(self._occupy, ("in", hosts[dst]), seconds)
        self._clock.at(start + link.latency_s, lambda: self._clock.at(take(), then))

    def read(self, cores: Cores, n_bytes: float, then: Effect) -> None:
        """Read bytes of records on a host, one batch after the other; call ``then`` when they are read."""
        rate = self._cluster.read_bytes_per_s
        self._clock.at(self._occupy(("read", cores), n_bytes / rate if rate else 0.0), then)

    def _occupy(self, way: object, seconds: float) -> float:
        """Occupy a direction of a connection for some seconds, once it is free; return the end time."""
        self._free_at[way] = max(self._clock.now, self._free_at[way]) + seconds
        self.busy_s[way] += seconds
        return self._free_at[way]
