"""Planner: predicts what a job takes on a cluster, and chooses its topology."""

__all__: list[str] = []
