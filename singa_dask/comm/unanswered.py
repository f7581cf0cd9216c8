"""UnansweredRequests: the requests of one process that servers have not answered yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from singa_dask.comm.message import Address, Message

__all__ = ["UnansweredRequests"]


class UnansweredRequests:
    """Keeps requests until they are answered, so that a server that starts again can have them again.

    A worker group has at most one request about a slice at a time, in one message for each sum of gradients.
    """

    def __init__(self) -> None:
        # of each server: (slice, worker group) -> messages
        self._requests: dict[Address, dict[tuple[int, int], list[Message]]] = defaultdict(dict)

    def add(self, request: Message) -> None:
        """Keep a request."""
        requests, key = self._requests[request.dst], (request.slice, request.info["group"])
        if key in requests:
            requests[key].append(request)
        else:
            requests[key] = [request]

    def discard(self, answer: Message) -> bool:
        """Forget what is answered; return False if nothing is: a request that was sent again has two answers."""
        requests, key = self._requests[answer.src], (answer.slice, answer.info["group"])
        if key not in requests or requests[key][0].step != answer.step:
            return False
        del requests[key]
        return True

    def of(self, servers: Collection[Address]) -> list[Message]:
        """Return the requests to some servers, to each in the order in which they were added."""
        known = sorted(server for server in self._requests if server in servers)
        return [each for server in known for same in self._requests[server].values() for each in same]

    def clear(self) -> None:
        """Forget all requests."""
        self._requests.clear()
