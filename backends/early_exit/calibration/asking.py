"""Asks an early-exit backend for answers at one threshold after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import backends
from backends.checkpoints.models import one_line
from backends.early_exit.calibration.answers import AnswerFile
from backends.early_exit.calibration.files import NONE
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.prompts import CalibrationPrompt, decode
from backends.early_exit.calibration.settings import AT_ONCE, VLLM, Settings
from backends.early_exit.policy import NEVER
from backends.engine.model.architecture import EngineError
from backends.vllm.arguments import TAKEN
from harness.core.backend import Backend
from harness.core.errors import UserError, of_memory
from harness.core.nouns import Model

_WIDER = ("bfloat16", "float32")
Tell = Callable[[float | None, int, int, float], None]
"""Of a threshold: groups answered, those of them that were known, seconds since it began."""


class ExitAnswers:
    """Answers of all groups, taken up from a file or made and kept there.

    Args:
        settings: of one sequence of thresholds.
        directory: the model's.
        groups: prompts that are decoded together.
        stops: token ids that end an answer.
        kept: the file.
        tell: called as groups are answered.
    """

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        groups: Sequence[Sequence[CalibrationPrompt]],
        stops: Sequence[int],
        kept: AnswerFile,
        tell: Tell,
    ) -> None:
        self._settings, self._directory, self._groups = settings, directory, groups
        self._stops, self._kept, self._tell = stops, kept, tell
        self._opened: Backend | None = None

    def close(self) -> None:
        """Close the engine, if it was needed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def answers(
        self, threshold: float | None, known: Sequence[AnsweredGroup] = ()
    ) -> list[AnsweredGroup]:
        """Of all groups, in order; `threshold` None: the full model's, which may be `known`."""
        with told_plainly(self._settings):
            return self._answers(threshold, known)

    def _answers(
        self, threshold: float | None, known: Sequence[AnsweredGroup]
    ) -> list[AnsweredGroup]:
        there, began = len(self._kept.groups(threshold)), time.monotonic()
        missing = [n for n in range(len(self._groups)) if n not in self._kept.groups(threshold)]
        backend = self._set_up(threshold, bool(known)) if missing else None
        if known:
            for number in missing:
                self._kept.add(threshold, number, known[number])
        elif backend is not None:
            at_once = 1 if self._settings.backend == VLLM else AT_ONCE
            for start in range(0, len(missing), at_once):
                numbers = missing[start : start + at_once]
                found = decode(backend, [self._groups[number] for number in numbers], self._stops)
                for number, group in zip(numbers, found, strict=True):
                    self._kept.add(threshold, number, group)
                done = there + start + len(numbers)
                self._tell(threshold, done, there, time.monotonic() - began)
        return [self._kept.groups(threshold)[number] for number in range(len(self._groups))]

    def _set_up(self, threshold: float | None, is_known: bool) -> Backend:
        """The engine, loaded when the first answer is missing, with this threshold."""
        settings, whole = self._settings, settings_of_full(self._settings)
        if self._opened is None:
            info = self._open(settings.options()).info
            layers = list(info.options["layers"])
            self._kept.note_opened({"layers": layers, "backend": f"{info.name} {info.version}"})
        assert self._opened is not None
        if is_known:
            return self._opened
        chosen = {"measure": settings.measure, "threshold": threshold}
        chosen |= {"decay": settings.decay, "decay_tau": settings.tau}
        chosen["layers"] = self._kept.opened["layers"]
        configure = getattr(self._opened, "configure", None)
        if configure is not None:
            self._opened.reset()
            configure({"measure": NEVER} if threshold is None else chosen)
            return self._opened
        self.close()
        changed = {"threshold": threshold, "layers": chosen["layers"]}
        return self._open(whole if threshold is None else {**settings.options(), **changed})

    def _open(self, options: Mapping[str, Any]) -> Backend:
        settings = self._settings
        model = Model(settings.model, settings.revision, dtype=settings.dtype)
        self._opened = backends.open_backend(settings.backend, self._directory, model, options)
        return self._opened


@contextmanager
def told_plainly(settings: Settings) -> Iterator[None]:
    """What an engine raises for a device that is too small or taken, or for a dtype that the model
    does not bear, becomes a `UserError` that says which option to give."""
    try:
        yield
    except EngineError as error:
        others = " or ".join(name for name in _WIDER if name != settings.dtype)
        raise UserError(
            f"--dtype {settings.dtype}: {one_line(error)}; take --dtype {others}"
        ) from None
    except (RuntimeError, ValueError, MemoryError) as error:
        text = one_line(error)
        if text.startswith(TAKEN):
            raise UserError(
                f"--backend {settings.backend}: {text}; end what holds the memory, or give "
                f"--option 'engine={{gpu_memory_utilization: 0.5}}'"
            ) from None
        if not of_memory(error):
            raise
        smaller = "--option max_model_len=N"
        if settings.backend == VLLM:
            smaller += (
                ", --option kv_cache_gib=N or --option 'engine={gpu_memory_utilization: 0.8}'"
            )
        raise UserError(
            f"--backend {settings.backend}: the device has too little memory ({text}); less is "
            f"needed with {smaller}"
        ) from None


def settings_of_full(settings: Settings) -> dict[str, Any]:
    """Options with which nobody leaves early."""
    seats = settings.options()["max_num_seqs"]
    return {"measure": NEVER, "calibration": NONE, "max_num_seqs": seats, **settings.engine}
