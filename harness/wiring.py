"""Joins the folders: what an experiment names becomes engines, requests, texts and scores.

Apart from `harness.cli` because child processes import it, and a child has no use for a command
line. Only the command line, its `running`, `doctor` and `selftest`, and this module import every
folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import backends
import workloads
from backends import models
from harness import gpu
from harness.config import Experiment, Known
from harness.core import (
    Backend,
    BackendInfo,
    Generation,
    Model,
    Request,
    Trial,
    UserError,
    Workload,
)
from workloads import arrivals, datasets, prompts, scoring

WARM_UP_TOKENS = 16
WARM_UP_REQUESTS = 4


def known() -> Known:
    """What an experiment file may name, for `harness.config`."""
    return Known(
        backends={
            name: {key: option.type is list for key, option in backends.options(name).items()}
            for name in backends.BACKENDS
        },
        workloads={name: spec.max_new_tokens for name, spec in workloads.WORKLOADS.items()},
        check_options=backends.check_options,
        check_workload=datasets.row_options,
    )


def resolve(experiment: Experiment) -> Experiment:
    """Pin what the experiment names by content: checksums of model and rows, a concrete dtype.

    Also reads every arrival trace once, so that a bad one is found before an engine is loaded.
    Raises `UserError` for a model or a data file that cannot be used.
    """
    runs_model = any(backends.load_class(choice.name).needs_model for choice in experiment.backends)
    directory = models.resolve(experiment.model, weights=runs_model)
    dtype = experiment.model.dtype
    model = replace(
        experiment.model,
        checksum=models.checksum(directory),
        dtype=preferred_dtype() if dtype == "auto" else dtype,
    )
    for load in experiment.loads:
        arrivals.arrival_times(load, experiment.requests, experiment.seed)
    choices = tuple(
        replace(choice, workload=_pinned(choice.workload, experiment, directory))
        for choice in experiment.workloads
    )
    return replace(experiment, model=model, workloads=choices)


def preferred_dtype() -> str:
    """bfloat16 where this machine computes in it, else float32: what ``dtype: auto`` means."""
    if gpu.devices():
        return "bfloat16" if gpu.compute_capability() >= (8, 0) else "float32"
    with contextlib.suppress(OSError):
        flags = set(Path("/proc/cpuinfo").read_text().split())
        return "bfloat16" if flags & {"avx512_bf16", "amx_bf16", "bf16"} else "float32"
    return "float32"


def _pinned(workload: Workload, experiment: Experiment, directory: Path) -> Workload:
    needs_tokenizer = datasets.row_options(workload).article_limit is not None
    tokenizer = models.load_tokenizer(directory) if needs_tokenizer else None
    rows = _rows(workload, experiment.seed, experiment.requests, tokenizer)
    return replace(workload, checksum=_checksum(workload, rows))


def _rows(workload: Workload, seed: int, count: int, tokenizer: Any) -> list[datasets.Row]:
    def count_tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return datasets.load_rows(workload, seed, count, count_tokens=count_tokens)


def _checksum(workload: Workload, rows: Sequence[datasets.Row]) -> str:
    """Of the prompts, that is of the rows and of how their articles are cut."""
    cut = workload.options.get("max_article_tokens", "whole")
    return hashlib.sha256(f"{datasets.checksum(rows)} {cut}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One measured request's row, with the id that pairs it across backends."""

    request_id: str
    row: datasets.Row
    token_ids: tuple[int, ...]


def load_prompts(trial: Trial, tokenizer: Any) -> list[Prompt]:
    """The prompts of a trial, in request order. Equal for every backend, repeat and load."""
    workload = trial.workload
    rows = _rows(workload, trial.seed, trial.requests, tokenizer)
    if _checksum(workload, rows) != workload.checksum:
        raise UserError(f"workload {workload.name}: its data changed while the experiment ran")
    limit = workload.options.get("max_article_tokens")
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        seen[row.id] = count = seen.get(row.id, 0) + 1
        suffix = f"#{count}" if count > 1 else ""
        ids = prompts.encode_prompt(tokenizer, workload.name, row.data, limit)
        found.append(Prompt(f"{workload.name}-{row.id}{suffix}", row, tuple(ids)))
    return found


def model_folder(model: Model) -> Path:
    """The folder of a model that `resolve` has checked; configuration and tokenizer only."""
    return models.resolve(model, weights=False)


def prompt_rows(
    trials: Sequence[Trial], directory: Path
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """What the store keeps of each workload, with the workload's checksum.

    A row has the prompt's text, its length in tokens, and the reference answer.
    """
    tokenizer = models.load_tokenizer(directory)
    for trial in {trial.workload.checksum: trial for trial in trials}.values():
        name = trial.workload.name
        rows = [
            {
                "request_id": prompt.request_id,
                "prompt_text": prompts.instruction(name, prompt.row.data),
                "prompt_tokens": len(prompt.token_ids),
                "answer": prompts.answer(name, prompt.row.data),
            }
            for prompt in load_prompts(trial, tokenizer)
        ]
        yield rows, trial.workload.checksum or ""


@dataclass(slots=True)
class EngineSession:
    """A loaded engine with its tokenizer, in the child process that measures it."""

    backend: Backend
    tokenizer: Any
    stop_ids: tuple[int, ...]
    setup_s: float
    _prompts: dict[str, list[Prompt]] = field(default_factory=dict)

    @property
    def info(self) -> BackendInfo:
        """The backend's own description."""
        return self.backend.info

    def requests(self, trial: Trial) -> tuple[list[Request], list[Request]]:
        """The warm-up's requests, on prompts of their own, and the measured ones."""
        found = self._load(trial)
        times = arrivals.arrival_times(trial.load, len(found), trial.seed)
        measured = [
            Request(
                id=prompt.request_id,
                prompt_ids=prompt.token_ids,
                max_new_tokens=trial.max_new_tokens,
                sampling=trial.sampling,
                stop_ids=self.stop_ids,
                ignore_eos=trial.ignore_eos,
                arrival_s=arrival_s,
            )
            for prompt, arrival_s in zip(found, times, strict=True)
        ]
        return _warm_up(measured, trial), measured

    def finish(
        self, trial: Trial, generations: Sequence[Generation]
    ) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
        """Decode and score the answers: (texts, scores) by request id. Errors are not scored."""
        texts = {
            g.request_id: str(self.tokenizer.decode(g.token_ids, skip_special_tokens=True))
            for g in generations
            if g.finished in ("stop", "length")
        }
        rows = {prompt.request_id: prompt.row.data for prompt in self._load(trial)}
        answered = [rows[request_id] for request_id in texts]
        scores = scoring.score_all(trial.workload.name, answered, list(texts.values()))
        return texts, dict(zip(texts, scores, strict=True))

    def close(self) -> None:
        """Free the engine."""
        self.backend.close()

    def _load(self, trial: Trial) -> list[Prompt]:
        key = f"{trial.workload.checksum} {trial.requests}"
        if key not in self._prompts:
            self._prompts[key] = load_prompts(trial, self.tokenizer)
        return self._prompts[key]


def _warm_up(measured: Sequence[Request], trial: Trial) -> list[Request]:
    """Prompts of the same lengths and tokens in another order: the same work, nothing cached."""
    count = max(WARM_UP_REQUESTS, trial.load.concurrency or 0)
    rng = random.Random(trial.seed)
    found = []
    for index in range(min(count, len(measured))):
        request = measured[index]
        ids = list(request.prompt_ids)
        rng.shuffle(ids)
        found.append(
            replace(
                request,
                id=f"warm-up-{index}",
                prompt_ids=tuple(ids),
                max_new_tokens=min(WARM_UP_TOKENS, trial.max_new_tokens),
                ignore_eos=True,
                arrival_s=0.0,
            )
        )
    return found


def open_session(trial: Trial) -> EngineSession:
    """Load the engine and the tokenizer that a trial needs. Runs in the child process."""
    started = time.monotonic()
    directory = models.resolve(trial.model)
    backend = backends.open_backend(trial.backend, directory, trial.model, trial.options)
    tokenizer = models.load_tokenizer(directory)
    return EngineSession(
        backend=backend,
        tokenizer=tokenizer,
        stop_ids=models.stop_ids(directory, tokenizer),
        setup_s=time.monotonic() - started,
    )


def backend_catalogue() -> list[dict[str, Any]]:
    """What ``decodebench list backends`` shows."""
    return [
        {
            "name": name,
            "options": {
                key: {"type": option.type.__name__, "default": option.default, "help": option.help}
                for key, option in backends.options(name).items()
            },
        }
        for name in sorted(backends.BACKENDS)
    ]


def workload_catalogue() -> list[dict[str, Any]]:
    """What ``decodebench list workloads`` shows."""
    return [
        {"name": name, "fields": list(spec.fields), "max_new_tokens": spec.max_new_tokens}
        for name, spec in sorted(workloads.WORKLOADS.items())
    ]


def model_catalogue() -> list[dict[str, Any]]:
    """What ``decodebench list models`` shows: the bundled ones, by name."""
    return models.catalogue()
