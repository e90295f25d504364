"""The heads on CUDA, at a fixed number of rows: what a state makes its next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.engine.model.forward import head_product
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import Weights
from backends.kernels.exit_head import HeadScratch, exit_head
from backends.kernels.rms_norm import rms_norm


@dataclass(frozen=True, slots=True)
class CudaHead:
    """A matrix that turns a boundary's rows into tokens, and where it leaves what it finds."""

    matrix: Tensor
    token_ids: Tensor | None
    scratch: HeadScratch
    found: Tensor
    """(2, rows) int32: tokens, and the bits of their float32 confidences; for one copy."""
    margin: bool
    """See `ExitHead.margin`."""
    scales: Tensor | None
    """See `ExitHead.scales`."""

    @classmethod
    def of(cls, head: ExitHead, like: Tensor, rows: int) -> CudaHead:
        """For calls of `rows` rows, with the dtype and device of `like`."""
        place, scales = like.device, head.scales
        if scales is None or head.margin:
            matrix, scales = head.plain().to(place, like.dtype), None
        else:
            matrix, scales = head.matrix[:].to(place), scales.to(place).contiguous()
        matrix = matrix.detach().contiguous()
        ids = None if head.token_ids is None else head.token_ids.to(like.device).contiguous()
        found = torch.zeros(2, rows, dtype=torch.int32, device=like.device)
        scratch = HeadScratch.allocate(rows, len(matrix), like.device)
        return cls(matrix, ids, scratch, found, head.margin, scales)

    def find(self, hidden: Tensor) -> None:
        """Leave in `found` what the (rows, width) states under the final norm make of it."""
        if self.margin:
            find_margins(hidden, self)
            return
        tokens, confidence = self.found[0], self.found[1].view(torch.float32)
        chosen = {"token_ids": self.token_ids, "scales": self.scales}
        exit_head(hidden, self.matrix, self.scratch, tokens, confidence, **chosen)

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, V') float32 of (rows, width) states under the final norm."""
        if self.scales is None:
            return head_product(hidden, self.matrix)
        return (hidden.float() @ self.matrix.float().T) * self.scales


def find_margins(hidden: Tensor, head: CudaHead) -> None:
    """What the head finds in (rows, width) states under the final norm, with the best token's
    probability less the second's. The logits are written down for it."""
    logits = head_product(hidden, head.matrix)
    best, places = logits.topk(2)
    first, second = (best - torch.logsumexp(logits, -1, keepdim=True)).exp().unbind(1)
    tokens = places[:, 0] if head.token_ids is None else head.token_ids[places[:, 0]]
    head.found[0].copy_(torch.where(first.isnan(), -1, tokens))
    head.found[1].view(torch.float32).copy_(first - second)


def final_norm(weights: Weights, source: tuple[Tensor, Tensor], out: Tensor) -> Tensor:
    """Launch the norm before the heads, from the rows `source[1]`, int32, of the table `source[0]`
    to (rows, width) `out`, which is handed back."""
    gain, epsilon = weights.norm, weights.epsilon
    rms_norm(source[0], rows=len(out), source_rows=source[1], gain=gain, epsilon=epsilon, out=out)
    return out
