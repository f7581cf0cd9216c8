"""The parts of a job that run in its processes: workers, servers, and their host."""

__all__: list[str] = []
