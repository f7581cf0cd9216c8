"""UnansweredRequests: the requests of one process that servers have not answered yet."""

from __future__ import annotations

from singa_dask.comm.message import Address, Message

__all__ = ["UnansweredRequests"]


class UnansweredRequests:
    """Knows the step of each request until it is answered.

    A worker group has at most one request about a slice at a time, in one message for each sum of gradients.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[Address, int, int], int] = {}

    def add(self, request: Message) -> None:
        """Expect an answer to a request."""
        self._steps[request.dst, request.slice, request.info["group"]] = request.step

    def discard(self, answer: Message) -> bool:
        """Take note of an answer; return False if it is not to a request that was added."""
        key = answer.src, answer.slice, answer.info["group"]
        if self._steps.get(key) != answer.step:
            return False
        del self._steps[key]
        return True

    def clear(self) -> None:
        """Forget all requests."""
        self._steps.clear()
