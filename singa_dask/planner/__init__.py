"""Planner: predicts what a job takes on a cluster, and chooses its topology."""
