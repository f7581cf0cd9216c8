"""The progress of a job on a terminal or in a notebook: `progress` as lines, `bars` as a table."""

__all__: list[str] = []
