"""What is particular to trained exit heads: their kind, layers and the report's thresholds."""

from __future__ import annotations

from backends.checkpoints.exit_heads import KINDS, quarters
from harness.core.errors import UserError, nearest

GAMMAS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95)
"""Thresholds that the report counts tokens over."""


def check_kind(kind: str) -> None:
    """Raise `UserError` for a kind of heads that there is none of."""
    if kind not in KINDS:
        raise UserError(f"--kind: unknown kind '{kind}'; {nearest(kind, KINDS)}")


def parse_layers(text: str | None, layers: int) -> tuple[int, ...]:
    """The exit layers that `--layers` names, of a model with `layers` layers.

    None means the quarters of the depth, "all" every layer but the last.

    Raises:
        UserError: for what is no number, no layer or a layer named twice, or without a layer to
            exit at.
    """
    if layers < 2:
        raise UserError(f"--layers: a model of {layers} layer has none to exit at")
    if text is None:
        return quarters(layers)
    if text.strip() == "all":
        return tuple(range(1, layers))
    found: list[int] = []
    for part in text.split(","):
        if not part.strip().isdecimal():
            raise UserError(f"--layers: expected numbers such as 2,4,6 or all, got '{text}'")
        layer = int(part)
        if not 0 < layer < layers:
            raise UserError(
                f"--layers: no exit after layer {layer}: expected 1 to {layers - 1} (the model "
                f"has {layers} layers)"
            )
        if layer in found:
            raise UserError(f"--layers: layer {layer} is named twice")
        found.append(layer)
    return tuple(sorted(found))
