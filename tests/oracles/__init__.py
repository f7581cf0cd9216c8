"""Independent references: PyTorch and SciPy in float64. Skipped where the extra ``oracles`` is not installed."""
