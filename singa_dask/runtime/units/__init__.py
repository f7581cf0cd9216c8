"""What runs in a process of a job: workers, servers, and what hosts them."""

from __future__ import annotations

__all__: list[str] = []
