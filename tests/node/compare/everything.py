"""All scenarios by name, in the order of the table."""

from . import away, watching
from .scenarios import ALL

__all__ = ["ALL", "away", "watching"]
