"""The contract between the harness and a system under test: all of it.

A backend is a class named in `backends.BACKENDS`. Before anything runs the harness asks the class
about options and models; in a child process it opens one and drives it from one thread: `submit`
and `poll` while the clock runs, `reset` between trials. What a class leaves out has the default
given here.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from harness.core.errors import UserError, nearest
from harness.core.nouns import Answer, BackendInfo, Commit, Load, Model, Request

NAP_S = 0.0001
"""Longest sleep of the default `Backend.wait`: what a commit may lie about before it is stamped.
Long enough to leave the core to others, short against a millisecond."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend: for `decodebench list backends` and for checking experiments."""

    type: type
    """A list in an experiment file is this option's value where `type` is list, else a grid."""
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    """Values allowed; for a list, each in it."""
    minimum: float | None = None
    """Smallest number allowed; for a list it holds for each number in it."""
    maximum: float | None = None
    words: tuple[str, ...] = ()
    """Words that stand for a value of the type, such as "auto"."""
    mapping: bool = False
    """It may be a mapping of keys as well, which `Backend.check` looks into."""

    def check(self, where: str, value: Any) -> None:
        """Raise `UserError`, which begins with `where`, for a value that the option cannot have."""
        if value is None and self.default is None:
            return
        if isinstance(value, str) and value in self.words:
            return
        if self.mapping and isinstance(value, dict):
            return
        if not _fits(self.type, value):
            kinds = [self.type.__name__, *self.words, *["dict"] * self.mapping]
            expected = " or ".join(kinds)
            raise UserError(f"{where}: expected {expected}, got {value!r}")
        for item in value if isinstance(value, list) else [value]:
            if self.choices and item not in self.choices:
                raise UserError(f"{where}: {item!r}: {nearest(str(item), map(str, self.choices))}")
            self._check_bounds(where, item)

    def _check_bounds(self, where: str, number: Any) -> None:
        low, high = self.minimum, self.maximum
        if (low, high) != (None, None) and not _fits(float, number):
            raise UserError(f"{where}: expected a number, got {number!r}")
        if low is not None and not number >= low:
            raise UserError(f"{where}: expected at least {low:g}, got {number!r}")
        if high is not None and not number <= high:
            raise UserError(f"{where}: expected at most {high:g}, got {number!r}")


def _fits(expected: type, value: Any) -> bool:
    """Like isinstance, but an int is a float and a bool is no number."""
    if isinstance(value, bool):
        return expected is bool
    if isinstance(value, int) and expected is float:
        return True
    return isinstance(value, expected)


class Backend(abc.ABC):
    """A system under test.

    Latencies come from the stamp of each poll, never from the system. One whose work is done
    elsewhere (capability `SERVER`) says on its commits when their bytes left and arrived.

    Every `options` below holds all of `OPTIONS`: those given, the others at their defaults, each
    checked by its `Option`.
    """

    OPTIONS: ClassVar[Mapping[str, Option]] = {}
    needs_model: ClassVar[bool] = True
    """Whether it loads the model's weights; else the configuration and tokenizer have to do."""
    answers: ClassVar[Answer] = "tokens"
    """What it answers with; workloads whose requests ask for the other are refused."""
    CONTEXT: ClassVar[float | None] = None
    """Tokens that a prompt and its answer have together at most where the option `max_model_len` is
    not given and the model's positions are more (inf: they alone bound it). None: it has no bound
    of its own."""
    families: ClassVar[frozenset[str] | None] = None
    """Architectures that it takes, as ``config.json`` names them; None: it finds out itself."""

    info: BackendInfo
    """What it is, with the options in force. Set by the time it is open."""

    @classmethod  # noqa: B027
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for what cannot be run: called with the options alone (`model_dir`
        None) when an experiment is read, and with the model's folder before anything runs."""

    @classmethod  # noqa: B027
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a shape, a model of random weights, that it could run but that
        would tell nothing: called beside `check`, before anything runs."""

    @classmethod  # noqa: B027
    def check_workload(cls, workload: str, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a workload that it cannot run with these options: called for
        options that passed `check`, before anything runs."""

    @classmethod
    def batch_decides(cls, options: Mapping[str, Any]) -> bool:
        """Whether an answer may depend, by more than rounding, on what is decoded beside it."""
        return False

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """What the user probably did not mean, one line each. For options that passed `check`."""
        return []

    @classmethod
    def dtype_warnings(cls, model_dir: Path, options: Mapping[str, Any], dtype: str) -> list[str]:
        """The same of the dtype in which the model is to run."""
        return []

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """Files that options name and that decide a trial's numbers: they enter its key."""
        return []

    @classmethod
    @abc.abstractmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load it, for options that passed `check`. `model_dir` is None outside a sweep only, and
        where `needs_model` is False. Raises `UserError` for what only loading can tell."""

    def prepare(self, requests: Sequence[Request], load: Load) -> None:  # noqa: B027
        """Called before the clock starts, for what need not be timed, such as connections."""

    @abc.abstractmethod
    def submit(self, request: Request) -> None:
        """Accept a request; must return at once (queueing is the backend's business). One that
        cannot be served whole is answered by an error commit (see `misfit`), never cut short."""

    @abc.abstractmethod
    def poll(self) -> list[Commit]:
        """One engine step, or whatever has arrived. An empty list means nothing is ready."""

    def wait(self, timeout_s: float) -> None:
        """Nothing was ready, and nothing else is due for `timeout_s`: sleep until `poll` may have
        something to hand out, at most that long."""
        time.sleep(min(timeout_s, NAP_S))

    @abc.abstractmethod
    def reset(self) -> None:
        """Drop caches and unfinished requests, so that the next trial starts cold."""

    def texts(self) -> dict[str, str] | None:
        """The answers since `reset` as text, by request id, from a backend that is not told which
        tokens they are made of. None: the harness decodes the token ids."""
        return None

    def places(self) -> Sequence[Mapping[str, Any]]:
        """Of a system of several workers, for each where it ran: plain JSON data that a trial's
        environment keeps as `workers`. Asked once a load is over; empty: there is nothing to tell.
        """
        return ()

    def close(self) -> None:  # noqa: B027
        """Free the device and every process and thread."""


def misfit(request: Request, max_model_len: int, vocabulary: int) -> Commit | None:
    """The answer to a request that an engine cannot serve as asked: it would cut it short or fall
    over. None for one that fits."""
    length = len(request.prompt_ids)
    if length == 0:
        problem = "the prompt is empty"
    elif length + request.max_new_tokens > max_model_len:
        problem = (
            f"prompt of {length} tokens and max_new_tokens {request.max_new_tokens} "
            f"exceed max_model_len {max_model_len}"
        )
    elif not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < vocabulary:
        problem = f"a prompt token is outside the vocabulary of {vocabulary}"
    else:
        return None
    return Commit(request.id, (), "error", error=problem)
