"""The bundled checkpoints: a small trained target model and its draft model."""

from pathlib import Path


def path(name: str) -> Path:
    """Return the folder of a bundled checkpoint, "target" or "draft"."""
    return Path(__file__).parent / name
