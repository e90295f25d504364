"""Answers in the user's cache, prompt by prompt: another training of the same model takes those
that it asks for too, whatever rows it has otherwise."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from backends.checkpoints.cache import ANSWERS
from backends.training.exits.data import TrainPrompt
from harness.core.files import cache_folder, write_atomic
from harness.core.nouns import canonical_json

FORM = 1
"""Of the cached answers: to be raised where the same model would answer otherwise."""


class KeptAnswers:
    """Those in one file, a line each. Losing it is harmless, and so is a home that takes none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, prompts: Sequence[TrainPrompt]) -> dict[int, list[int]]:
        """The answers that are there, by the prompt's place."""
        there = dict(self._lines())
        found = {number: there.get(_key(prompt)) for number, prompt in enumerate(prompts)}
        return {number: ids for number, ids in found.items() if ids is not None}

    def add(self, prompts: Sequence[TrainPrompt], made: Mapping[int, list[int]]) -> None:
        """Keep answers, by their prompt's place, beside those of before."""
        new = {_key(prompts[number]): ids for number, ids in made.items()}
        whole = dict(self._lines()) | new
        text = "".join(json.dumps([key, ids]) + "\n" for key, ids in whole.items())
        with contextlib.suppress(OSError):  # no home, or a full disk: nothing is lost
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, text.encode())

    def _lines(self) -> Iterator[tuple[str, list[int]]]:
        """Lines that are none of ours are passed over."""
        text = ""
        with contextlib.suppress(OSError, ValueError):
            text = self.path.read_text(encoding="utf-8")
        for line in text.splitlines():
            with contextlib.suppress(ValueError, TypeError):
                key, ids = json.loads(line)
                if isinstance(key, str) and ids and all(type(token) is int for token in ids):
                    yield key, ids


def kept_answers(checkpoint: str, stops: Sequence[int], like: Tensor) -> KeptAnswers:
    """Those of this model (its checksum), in a file named by all that decides them beside the
    prompt: the kind of device and the dtype included."""
    decides = [FORM, checkpoint, sorted(stops), str(like.dtype), like.device.type]
    name = hashlib.sha256(canonical_json(decides).encode()).hexdigest()
    return KeptAnswers(cache_folder() / ANSWERS / f"{name}.jsonl")


def _key(prompt: TrainPrompt) -> str:
    content = canonical_json([list(prompt.ids), prompt.limit])
    return hashlib.sha256(content.encode()).hexdigest()[:32]
