"""A residual network for small grey images (He et al. 2016) with BranchyNet's exits.

A prompt is an image's pixels line by line, token ids from 0 to 255.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from backends.classifiers.models.base import RowState
from backends.classifiers.models.shapes import GREYS, ResidualShape

FLAT = 2.0
"""A spread of pixel values below which an image is taken to be of one grey."""


@dataclass(slots=True)
class ImageBatch:
    """States of images, (n, channels, height, width)."""

    maps: Tensor

    def pick(self, places: Sequence[int]) -> ImageBatch:
        """The images at these places."""
        return ImageBatch(self.maps[list(places)])

    def split(self) -> list[RowState]:
        """Views of each image's state."""
        return [RowState(one, 0) for one in self.maps]


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, source: int, width: int) -> None:
        super().__init__()
        stride = 1 if source == width else 2
        self.conv1 = nn.Conv2d(source, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Conv2d(source, width, 1, stride, bias=False) if stride > 1 else None

    def forward(self, maps: Tensor) -> Tensor:
        """The maps after the block."""
        inner = functional.relu(self.norm1(self.conv1(maps)))
        past = maps if self.shortcut is None else self.shortcut(maps)
        return functional.relu(past + self.norm2(self.conv2(inner)))


class Branch(nn.Module):
    """An exit of BranchyNet: a convolution and a classifier."""

    def __init__(self, source: int, shape: ResidualShape) -> None:
        super().__init__()
        self.conv = nn.Conv2d(source, shape.branch_width, 3, 1, 1)
        self.classifier = nn.Linear(2 * shape.branch_width, shape.classes)

    def forward(self, maps: Tensor) -> Tensor:
        """(n, classes) logits."""
        inner = functional.relu(self.conv(maps))
        found: Tensor = self.classifier(torch.cat([inner.mean((2, 3)), inner.amax((2, 3))], 1))
        return found


class ResidualClassifier(nn.Module):
    """Blocks with a branch behind each but the last."""

    def __init__(self, shape: ResidualShape) -> None:
        super().__init__()
        widths = shape.widths
        self.stem = nn.Conv2d(1, widths[0], 3, 1, 1)
        sources = (widths[0], *widths[:-1])
        self.blocks = nn.ModuleList(
            ResidualBlock(a, b) for a, b in zip(sources, widths, strict=True)
        )
        self.branches = nn.ModuleList(Branch(width, shape) for width in widths[:-1])
        self.classifier = nn.Linear(widths[-1], shape.classes)
        self.shape = shape
        self.depth, self.classes = len(widths), shape.classes
        self.longest, self.vocabulary = shape.side**2, GREYS
        self.ramps = tuple(range(1, len(widths)))

    def start(self, prompts: Sequence[Sequence[int]]) -> list[RowState]:
        """States after the stem; each image is brought to mean 0 and spread 1 first."""
        side = self.shape.side
        pixels = torch.tensor([list(prompt) for prompt in prompts], dtype=torch.float32)
        mean, spread = pixels.mean(1, keepdim=True), pixels.std(1, keepdim=True)
        even = ((pixels - mean) / spread.clamp(min=FLAT)).view(-1, 1, side, side)
        return ImageBatch(functional.relu(self.stem(even.to(self.stem.weight.dtype)))).split()

    def gather(self, states: Sequence[RowState]) -> ImageBatch:
        """One batch."""
        return ImageBatch(torch.stack([state.hidden for state in states]))

    def layer(self, number: int, batch: ImageBatch) -> ImageBatch:
        """Run block `number`, from 1."""
        return ImageBatch(self.blocks[number - 1](batch.maps))

    def ramp(self, number: int, batch: ImageBatch) -> Tensor:
        """(n, classes) float32 logits of the branch behind `number` blocks."""
        found: Tensor = self.branches[number - 1](batch.maps)
        return found.float()

    def final(self, batch: ImageBatch) -> Tensor:
        """(n, classes) float32 logits."""
        found: Tensor = self.classifier(batch.maps.mean((2, 3)))
        return found.float()
