"""Hosts of a network with slow links, on one machine: network namespaces of Linux, each behind a shaped interface.

Needs root, and ``ip`` and ``tc`` of iproute2. Nothing outside of the namespaces can reach them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HUB_ADDRESS = "10.99.0.254"
"""Of the namespace that all hosts are connected to."""
CLONE_NEWNET = 0x40000000
BURSTS = {"gbit": "128kb", "mbit": "16kb"}
"""What may leave an interface at once after a rest, by the unit of its rate: about a millisecond of it."""


def inside(name: str) -> list[str]:
    """Return the start of a command that runs in a namespace."""
    return ["ip", "netns", "exec", name]


@contextmanager
def shaped_hosts(n: int, rate: str) -> Iterator[tuple[str, list[str]]]:
    """Make ``n`` hosts whose interfaces carry ``rate`` in each direction, such as ``"100mbit"`` or ``"1gbit"``.

    Yields
    ------
    str, list of str
        Names of the namespace in the middle, and of the hosts, which have the addresses 10.99.0.1, 10.99.0.2, ...
    """
    hub, hosts = f"sd-{os.getpid()}-hub", [f"sd-{os.getpid()}-{k}" for k in range(n)]
    with ExitStack() as stack:
        for name in (hub, *hosts):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "delete", name)
            _run(*inside(name), "ip", "link", "set", "lo", "up")
        _run(*inside(hub), "ip", "link", "add", "br0", "type", "bridge")
        _run(*inside(hub), "ip", "address", "add", f"{HUB_ADDRESS}/24", "dev", "br0")
        _run(*inside(hub), "ip", "link", "set", "br0", "up")
        shaper = ("tbf", "rate", rate, "burst", BURSTS[rate.lstrip("0123456789.")], "limit", "16mb")
        for k, name in enumerate(hosts):
            _run("ip", "link", "add", f"v{k}", "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run(*inside(hub), "ip", "link", "set", f"v{k}", "master", "br0", "up")
            _run(*inside(name), "ip", "address", "add", f"10.99.0.{k + 1}/24", "dev", "eth0")
            _run(*inside(name), "ip", "link", "set", "eth0", "up")
            for where, device in ((name, "eth0"), (hub, f"v{k}")):
                _run(*inside(where), "tc", "qdisc", "add", "dev", device, "root", *shaper)
        yield hub, hosts


@contextmanager
def entered(name: str) -> Iterator[None]:
    """Have this thread, and those that it starts, in a namespace."""
    with open("/proc/thread-self/ns/net", "rb") as before, open(f"/run/netns/{name}", "rb") as namespace:
        _enter(namespace.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
