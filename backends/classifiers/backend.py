"""Classifiers as backends: what the plain one, the early exits and the pipeline have in common."""

from __future__ import annotations

import abc
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backends.classifiers.config import FAMILIES, ClassifierConfig, read
from backends.classifiers.flight import InputInFlight, answer
from backends.classifiers.models.shapes import GREYS, EncoderShape
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Answer, BackendInfo, Commit, Request
from harness.core.processes.cores import usable_cores


class LabelBackend(Backend):
    """Answers each request with one label."""

    families = frozenset(FAMILIES)
    answers: ClassVar[Answer] = "label"
    NAME: ClassVar[str]

    def __init__(self, config: ClassifierConfig, info: BackendInfo) -> None:
        self._config, self.info = config, info
        self._refused: list[Commit] = []
        self._live: dict[str, InputInFlight] = {}

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError`: no shape has a classifier's architecture."""
        raise UserError("random weights tell nothing of labels; expected a trained model")

    @classmethod
    def describe(cls, options: Mapping[str, Any], *, lossless: bool) -> BackendInfo:
        """The backend with the options that took effect."""
        return BackendInfo(
            name=cls.NAME,
            version=importlib.metadata.version("decodebench"),
            provenance="re-implementation",
            options={**options, "kernels": "torch"},
            lossless=lossless,
        )

    def submit(self, request: Request) -> None:
        """Queue a request for a label; what the network cannot take is refused."""
        problem = self._problem(request)
        if problem is not None:
            self._refused.append(Commit(request.id, (), "error", error=problem))
            return
        one = InputInFlight(request.id, request.prompt_ids)
        self._live[request.id] = one
        self.enqueue(one)

    def poll(self) -> list[Commit]:
        """Run one batch through one segment: the labels of those who are done."""
        found, self._refused = self._refused, []
        if self._live:
            found += [self._answered(one) for one in self.advance()]
        return found

    def wait(self, timeout_s: float) -> None:
        """Nothing to wait for while somebody is under way."""
        if not self._live:
            super().wait(timeout_s)

    def reset(self) -> None:
        """Forget every request."""
        self._refused.clear()
        self._live.clear()
        self.forget()

    @abc.abstractmethod
    def enqueue(self, one: InputInFlight) -> None:
        """An input that is to be labelled."""

    @abc.abstractmethod
    def advance(self) -> Sequence[InputInFlight]:
        """Run something for those under way, of whom there are some; return who is done."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Drop what is under way."""

    def _answered(self, one: InputInFlight) -> Commit:
        del self._live[one.request_id]
        return answer(one, self._config.labels, self._config.depth)

    def _problem(self, request: Request) -> str | None:
        """Why a request cannot be served as asked."""
        if request.answer != "label":
            return "asks for text; a classifier answers with a label"
        shape, ids = self._config.shape, request.prompt_ids
        if not ids:
            return "the prompt is empty"
        if isinstance(shape, EncoderShape):
            vocabulary = shape.vocabulary
            if len(ids) > shape.positions:
                return (
                    f"prompt of {len(ids)} tokens exceeds the model's {shape.positions} positions"
                )
        else:
            vocabulary = GREYS
            if len(ids) != shape.side**2:
                return f"an image has {len(ids)} pixels; expected {shape.side} x {shape.side}"
        if not 0 <= min(ids) <= max(ids) < vocabulary:
            return f"a prompt token is outside the vocabulary of {vocabulary}"
        return None


def refuse_unknown(name: str, model_dir: Path) -> ClassifierConfig:
    """The model's configuration. Raises `UserError` for one that is no classifier's, and for a
    tokenizer whose ids are not pixels where pixels are read."""
    try:
        return read(model_dir)
    except UserError as error:
        raise UserError(f"backend '{name}': {error}") from None


def set_threads(options: Mapping[str, Any]) -> int:
    """How many threads torch gets: those asked for, else as many as can run at once."""
    import torch

    threads: int = options["threads"] or usable_cores()
    torch.set_num_threads(threads)
    return threads
