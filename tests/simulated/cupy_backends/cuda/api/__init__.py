"""As in CuPy: see the modules inside."""
