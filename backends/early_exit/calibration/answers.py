"""Answers of a calibration, kept group by group as they are made, so that a run can be taken up."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from backends.checkpoints.models import one_line
from backends.early_exit.calibration.group import AnsweredGroup, read_group, read_opened
from backends.seen import MARKS, read_marks
from harness.core.errors import UserError
from harness.core.nouns import canonical_json

FORMAT = 1
SUFFIX = ".answers.jsonl"
_QUESTION = '{"question"'
_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class AnswerFile:
    """The answers in the file beside a calibration, by threshold (None: the full model's).

    Everything that decides an answer apart from the threshold is in the file's first line; a file
    begun with something else is refused. One process at a time may hold it.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Open or begin the file. Raises `UserError` for one that belongs to another run."""
        self.path = path
        self.opened: dict[str, Any] = {}
        """What the backend said when it was first opened."""
        self._questions: list[dict[str, Any]] = []
        self._groups: dict[float | None, dict[int, AnsweredGroup]] = {}
        try:
            self._file = path.open("a+", encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise UserError(f"--out: {path}: {error.strerror}") from None
        try:
            self._lock()
            self._identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))
            self._take_up(self._identity)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> AnswerFile:
        """The file itself, which closes with the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, and so let others have it."""
        self._file.close()

    def groups(self, threshold: float | None) -> dict[int, AnsweredGroup]:
        """The groups answered at this threshold, by their number."""
        return self._groups.get(threshold, {})

    def note_opened(self, told: Mapping[str, Any]) -> None:
        """Keep what the backend says of itself. Raises `UserError` when it was otherwise before."""
        own = json.loads(json.dumps(dict(told)))
        if not self.opened:
            self._append({"opened": own})
            self.opened = own
        self._check_same(self.opened, own)

    def note_question(self, asked: Mapping[str, Any]) -> None:
        """Keep what is asked of the answers."""
        own = json.loads(json.dumps(dict(asked)))
        if own not in self._questions:
            self._append({"question": own})
            self._questions.append(own)

    def earlier_choices(self, asked: Mapping[str, Any]) -> int:
        """How many other choices were made on any of these prompts, for this model and measure: by
        the files of answers in this folder, this one included. Sets of layers that are tried out
        together, each in a file, are one choice."""
        own, marks = self._identity, read_marks(self._identity[MARKS])
        found = set()
        for path in self.path.parent.glob(f"*{SUFFIX}"):
            identity, questions = _choices(path)
            like = all(identity.get(key) == own[key] for key in ("checkpoint", "measure"))
            if like and _marks(identity) & marks:
                found |= {_choice(identity, question) for question in questions}
        return len(found - {_choice(own, asked)})

    def add(self, threshold: float | None, number: int, group: AnsweredGroup) -> None:
        """Keep a group's answers, on the disk when this returns."""
        self._append({"threshold": threshold, "group": number} | asdict(group))
        self._groups.setdefault(threshold, {})[number] = group

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(_line(line))
            self._file.flush()
        except OSError as error:
            raise UserError(f"--out: {self.path}: {error.strerror}") from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{self.path}: another calibration is writing into it; name another --out"
            ) from None
        except OSError:  # a file system without locks
            return

    def _take_up(self, identity: dict[str, Any]) -> None:
        begun = _line({"format": FORMAT, "identity": identity})
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            if not line.endswith("\n"):  # a kill cut it short, or it is another's file
                if number == 0 and not begun.startswith(line):
                    raise self._foreign(number, ValueError("no whole line"))
                break
            self._read(number, line, identity)
            whole += len(line.encode(errors="surrogateescape"))
        if self._groups and not self.opened:
            raise self._foreign(1, ValueError("answers before what gave them"))
        self._file.truncate(whole)
        if whole == 0:
            self._append({"format": FORMAT, "identity": identity})

    def _read(self, number: int, line: str, identity: dict[str, Any]) -> None:
        try:
            content = json.loads(line)
            if number == 0:
                form, there = content["format"], dict(content["identity"])
            elif "opened" in content:
                self.opened = read_opened(content)
            elif "question" in content:
                asked = dict(content["question"])
                if asked not in self._questions:
                    self._questions.append(asked)
            else:
                threshold, place, group = read_group(content, identity["batch"])
                self._groups.setdefault(threshold, {})[place] = group
        except _NOT_OURS as error:
            raise self._foreign(number, error) from None
        if number == 0:
            self._check_same({"format": form} | there, {"format": FORMAT} | identity)

    def _foreign(self, number: int, error: Exception) -> UserError:
        return UserError(
            f"{self.path}: line {number + 1} was not written by this command "
            f"({one_line(error)}); {self._another if number else 'choose another --out'}"
        )

    @property
    def _another(self) -> str:
        """What to do, and why that: what was chosen by some prompts looks better on them."""
        return (
            f"choose another --out, and other prompts with --without {self.path} (on the same ones "
            "it counts as a further choice)"
        )

    def _check_same(self, there: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for key, wanted in own.items():
            if there.get(key) != wanted:
                raise UserError(
                    f"{self.path}: {key} was {_shown(there.get(key))} in the calibration begun "
                    f"there, now it is {_shown(wanted)}; {self._another}"
                )


def _choices(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Whose answers a file has, and what was asked of them. Nothing of what is no such file; a line
    that another process is writing is not yet there."""
    identity: dict[str, Any] = {}
    questions = []
    with contextlib.suppress(OSError, *_NOT_OURS), path.open(encoding="utf-8") as file:
        identity = dict(json.loads(file.readline())["identity"])
        for line in file:
            if line.startswith(_QUESTION):
                questions.append(dict(json.loads(line)["question"]))
    return identity, questions


def _choice(identity: Mapping[str, Any], question: Mapping[str, Any]) -> str:
    """Equal for the same choice, by whatever version and in whichever file of its sets."""
    decides = {key: own for key, own in identity.items() if key not in ("layers", "code")}
    return canonical_json([decides, json.loads(json.dumps(dict(question)))])


def _marks(identity: Mapping[str, Any]) -> frozenset[str]:
    with contextlib.suppress(ValueError):
        return read_marks(identity.get(MARKS, ""))
    return frozenset()


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def _shown(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
