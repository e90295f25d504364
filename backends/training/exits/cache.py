"""Hidden states of the answers at every wanted boundary, cached in a mapped file."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from backends.training.exits.backbone import Backbone
from backends.training.exits.data import TrainPrompt
from backends.training.exits.memory import in_halves
from backends.training.exits.recipe import STATE
from harness.core.errors import UserError
from harness.core.files import move, write_atomic

TOKENS = {"cpu": 4096, "cuda": 32768}
"""Positions, padding included, that go through the model at once."""
KEEP_EVERY_S = 20.0
"""Between two notes of how far the states on disk are."""


@dataclass(frozen=True)
class Cache:
    """What exits read, of one answer after another.

    `states` is [boundaries, positions, d] in the model's dtype: the state after each exit layer
    (for heads normed, for a classifier as it is), and last after the model's last layer. Answer i
    has the positions starts[i] to starts[i + 1]; they are those at which an exit can be taken: from
    its first token to the last but one, for the prompt's last position always goes through the
    whole model. In a cache of whole texts the prompt's positions stand before them.
    """

    states: Tensor
    starts: list[int]
    workloads: list[str]
    """Of each answer."""

    @property
    def positions(self) -> int:
        """Number of positions."""
        return self.starts[-1]

    def groups(self) -> dict[str, Tensor]:
        """Which positions, bool [positions], are those of "all" workloads and of each."""
        lengths = [end - start for start, end in itertools.pairwise(self.starts)]
        names = [name for name, n in zip(self.workloads, lengths, strict=True) for _ in range(n)]
        found = {"all": torch.ones(self.positions, dtype=torch.bool)}
        for name in dict.fromkeys(self.workloads):
            found[name] = torch.tensor([name == own for own in names])
        return found

    def batch(self, answers: Sequence[int]) -> Iterator[Tensor]:
        """The states of these answers, [boundaries, n, d] each."""
        for answer in answers:
            yield self.states[:, self.starts[answer] : self.starts[answer + 1]]


def in_turn(cache: Cache, positions: int) -> list[int]:
    """Answers, one of each workload after another, with up to `positions` positions in all."""
    seen: Counter[str] = Counter()
    turns = []
    for answer, name in enumerate(cache.workloads):
        turns.append((seen[name], answer))
        seen[name] += 1
    chosen: list[int] = []
    for _, answer in sorted(turns):
        positions -= cache.starts[answer + 1] - cache.starts[answer]
        if chosen and positions < 0:
            break
        chosen.append(answer)
    return chosen


def select(cache: Cache, answers: Sequence[int]) -> Cache:
    """A cache of these answers alone, in memory."""
    starts = [0]
    for answer in answers:
        starts.append(starts[-1] + cache.starts[answer + 1] - cache.starts[answer])
    states = torch.cat(list(cache.batch(answers)), dim=1)
    return Cache(states, starts, [cache.workloads[answer] for answer in answers])


def build_cache(
    out: Path,
    name: str,
    backbone: Backbone,
    layers: Sequence[int],
    pairs: Sequence[tuple[TrainPrompt, list[int]]],
    going_on: Callable[[int], bool],
    *,
    whole: bool = False,
) -> Cache | None:
    """Run the model once over prompts with their answers and keep the states at the exits.

    Args:
        out: the run's folder; a file in its state is mapped, so that the states may be larger than
            memory. What an earlier run has put there is used again.
        name: which part of the data this is.
        backbone: the frozen model.
        layers: the exit layers, ascending.
        pairs: prompts and answers.
        going_on: called with the number of answers read so far; False stops early.
        whole: keep the states of the prompts too.

    Returns:
        None when it was stopped early.

    Raises:
        UserError: when no answer has a position to exit at, or the disk is too small; `OSError`
            where it is smaller than it says.
    """
    taps = [*layers, backbone.architecture.layers]
    used = [(prompt, answer) for prompt, answer in pairs if len(answer) > 1]
    if not used:
        raise UserError(
            f"all {len(pairs)} {name} answers of the model are a single token; take more --rows, "
            "in another folder"
        )
    starts = [0]
    for prompt, answer in used:
        starts.append(starts[-1] + len(answer) - 1 + (len(prompt.ids) if whole else 0))
    path, dtype = out / STATE / f"{name}.states", backbone.head.dtype
    shape = (len(taps), starts[-1], backbone.head.shape[1])
    if not (path.is_file() and path.stat().st_size == _size(shape, dtype)):
        begun = BegunStates(path, _size(shape, dtype))
        states = _map(begun.path, shape, dtype)
        if not _fill(states, starts, backbone, taps, used, going_on, begun):
            return None
        begun.finish()
    states = _map(path, shape, dtype)
    return Cache(states, starts, [prompt.workload for prompt, _ in used])


class BegunStates:
    """The file that states are written into until all are there, and how many answers' are.

    Raises `UserError` for a disk without `size` bytes, and `OSError`.
    """

    def __init__(self, target: Path, size: int) -> None:
        self.target, self.path = target, target.with_suffix(".begun")
        self._count = target.with_suffix(".count")
        if not (self.path.is_file() and self.path.stat().st_size == size):
            self._count.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
            _allocate(self.path, size)
        self.done = int(self._count.read_text()) if self._count.is_file() else 0
        self._kept_at = time.monotonic()

    def add(self, answers: int) -> None:
        """Count answers whose states were written, and note it now and then."""
        self.done += answers
        if time.monotonic() - self._kept_at >= KEEP_EVERY_S:
            self.keep()

    def keep(self) -> None:
        """Note how many are on the disk, once they are."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        write_atomic(self._count, str(self.done).encode())
        self._kept_at = time.monotonic()

    def finish(self) -> None:
        """Give the file its own name."""
        move(self.path, self.target)
        self._count.unlink(missing_ok=True)


def _fill(
    states: Tensor,
    starts: list[int],
    backbone: Backbone,
    taps: list[int],
    used: Sequence[tuple[TrainPrompt, list[int]]],
    going_on: Callable[[int], bool],
    begun: BegunStates,
) -> bool:
    """Write the states of every answer that has none yet; return whether it came to the end."""
    try:
        for chosen in _groups(used, TOKENS[backbone.head.device.type], begun.done):
            if not going_on(begun.done):
                return False
            for part, found in in_halves(partial(_states, backbone, taps, used), chosen):
                for number, rows in zip(part, found, strict=True):
                    kept = starts[number + 1] - starts[number]
                    states[:, starts[number] : starts[number + 1]] = rows[:, -kept:]
            begun.add(len(chosen))
        return True
    finally:
        begun.keep()


@torch.no_grad()
def _states(
    backbone: Backbone,
    taps: list[int],
    used: Sequence[tuple[TrainPrompt, list[int]]],
    chosen: list[int],
) -> list[Tensor]:
    """Each chosen text's states, [boundaries, n, d] on the CPU, from one pass padded on the
    right."""
    texts = [used[number][0].ids + used[number][1][:-1] for number in chosen]
    ids = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    states = backbone.states(ids, taps)
    return [
        torch.stack([states[tap][row, : len(text)] for tap in taps]).cpu()
        for row, text in enumerate(texts)
    ]


def _groups(
    used: Sequence[tuple[TrainPrompt, list[int]]], tokens: int, done: int
) -> Iterator[list[int]]:
    """Answers of like length, as many as fill `tokens` positions, behind the `done` first."""
    length = [len(prompt.ids) + len(answer) for prompt, answer in used]
    order = sorted(range(len(used)), key=lambda i: (length[i], i), reverse=True)[done:]
    while order:
        count = max(1, tokens // length[order[0]])
        yield order[:count]
        order = order[count:]


def _size(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return int(torch.Size(shape).numel()) * dtype.itemsize


def _allocate(path: Path, size: int) -> None:
    """Make a file whose place on the disk is its own: a mapped one that finds none ends the
    process."""
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise UserError(
            f"{path.parent}: the hidden states need {size / 1e9:.1f} GB and {free / 1e9:.1f} GB "
            "are free; fewer --rows need less"
        )
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def _map(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    numbers = torch.Size(shape).numel()
    return torch.from_file(str(path), shared=True, size=numbers, dtype=dtype).view(shape)
