"""The version of this package."""

__all__ = ["PROTOCOL", "__version__"]

__version__ = "0.2.0"
PROTOCOL = 10
"""Version of the messages between processes; incremented when two versions cannot work together."""
