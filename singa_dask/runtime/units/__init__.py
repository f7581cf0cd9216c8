"""The parts of a job that run in its processes: workers, servers, and their host."""

from __future__ import annotations

__all__: list[str] = []
