"""A loaded engine with its tokenizer, in the child process that measures it: requests go in, texts
and scores come out."""

from __future__ import annotations

import contextlib
import random
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import backends
from backends.checkpoints import models
from backends.checkpoints.shapes.sizes import read_sizes
from backends.replayed import replay_remarks
from backends.seen import seen_prompts
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.names import DRAFTS_FROM_ANSWERS, ENDS_AT_EOS, asked_again, row_id
from harness.core.nouns import REPLAYED, BackendInfo, Generation, Request, Sampling, Trial
from workloads import arrivals, scoring, workload_info
from workloads.measured import MeasuredPrompt, cut_lengths, load_prompts, trace_checksum

WARM_UP_TOKENS = 16
WARM_UP_REQUESTS = 4
SEEDS = 2**63


@dataclass(slots=True)
class EngineSession:
    """A loaded engine with its tokenizer, in the child process that measures it."""

    backend: Backend
    tokenizer: Any
    stop_ids: tuple[int, ...]
    setup_s: float
    pass_bytes: Mapping[str, int] | None = None
    """`Measured.pass_bytes` of the model that it has loaded."""
    directory: Path | None = None
    """The model's."""
    _prompts: dict[str, list[MeasuredPrompt]] = field(default_factory=dict)
    _unscored: dict[str, str] = field(default_factory=dict)
    """Why `finish` could not score answers of the last trial, by request id."""
    _repeated: str = ""
    """That its requests ask prompts again."""

    @property
    def info(self) -> BackendInfo:
        """The backend's own description, with what a pass of the model reads."""
        info = self.backend.info
        known = info.measured.pass_bytes or self.pass_bytes
        return replace(info, measured=replace(info.measured, pass_bytes=known))

    def requests(self, trial: Trial) -> tuple[list[Request], list[Request]]:
        """The warm-up's requests, on prompts of their own, and the measured ones."""
        found = self._load(trial)
        times = arrivals.of_trial(trial)
        if trace_checksum(trial.load, times) != trial.load.checksum:
            raise UserError(f"load {trial.load.label()}: the file changed while the experiment ran")
        found = _over_and_over(found, len(times))
        measured = [
            Request(
                id=prompt.request_id,
                prompt_ids=prompt.token_ids,
                max_new_tokens=prompt.longest(trial.max_new_tokens),
                sampling=_drawn(trial.sampling, place),
                stop_ids=self.stop_ids,
                ignore_eos=trial.ignore_eos or prompt.output_tokens is not None,
                arrival_s=arrival_s,
                answer=workload_info(trial.workload.name).answer,
                messages=prompt.messages,
            )
            for place, (prompt, arrival_s) in enumerate(zip(found, times, strict=True))
        ]
        chosen = ENDS_AT_EOS not in self.info.capabilities
        if not chosen and any(request.ignore_eos for request in measured):
            whose = "'ignore_eos'" if trial.ignore_eos else f"workload '{trial.workload.name}'"
            raise UserError(
                f"backend '{trial.backend}': its server refuses the field 'ignore_eos', without "
                f"which answers do not have the lengths that {whose} asks for"
            )
        return _warm_up(measured, trial, ignore_eos=chosen), measured

    def remarks(self, trial: Trial) -> list[str]:
        """Of a trial whose answers are cut before the lengths that the workload gives them, whose
        prompts were trained or calibrated on, or that replays what was not recorded of them; once
        it is finished, of prompts that were asked again and of answers that could not be scored."""
        prompts = self._load(trial)
        cut = cut_lengths([prompt.output_tokens for prompt in prompts], trial.max_new_tokens)
        found = [f"lengths-cut: {cut}"] if cut else []
        if self._repeated:
            found.append(f"prompts-repeated: {self._repeated}")
        if self._unscored:
            first, why = next(iter(self._unscored.items()))
            found.append(
                f"unscored: {len(self._unscored)} without a score; on the answer to '{first}' {why}"
            )
        if self.directory is None:
            return found
        distinct = {prompt.token_ids for prompt in prompts}
        seen = seen_prompts(trial.backend, self.directory, trial.options, distinct)
        return (
            found
            + [
                f"prompts-seen: {count} of {len(distinct)} prompts are among those of {file}"
                for file, count in seen.items()
            ]
            + [
                f"replayed-otherwise: {line}"
                for line in replay_remarks(trial, self.directory, prompts)
            ]
        )

    def finish(
        self, trial: Trial, generations: Sequence[Generation]
    ) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
        """Decode and score the answers: (texts, scores) by request id. Errors are not scored, and
        neither is what random weights and replayed decisions answer. Without scores are all where
        scoring fails: that is remarked."""
        self._unscored, self._repeated = {}, self._told_repeats(trial, generations)
        if self.info.provenance == REPLAYED:
            return {}, {}
        told = self.backend.texts()
        texts = {
            g.request_id: self._text(g) if told is None else told[g.request_id]
            for g in generations
            if g.finished in ("stop", "length")
        }
        if trial.model.shape:
            return texts, {}
        try:
            return texts, self._scores(trial, texts, is_own=told is not None)
        except Exception as error:  # the answers took longer to make than their scores would
            with contextlib.suppress(OSError):  # a full disk must not hide the error itself
                traceback.print_exception(error)
            text = " ".join(str(error).split())
            line = text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
            self._unscored = dict.fromkeys(texts, f"scoring failed: {line}")
            return texts, {}

    def _told_repeats(self, trial: Trial, generations: Sequence[Generation]) -> str:
        """How many requests asked a prompt again, where that was not meant or matters; else
        nothing."""
        learns = DRAFTS_FROM_ANSWERS in self.info.capabilities
        if trial.duration_s is not None and not learns:
            return ""
        prompts = {prompt.request_id: prompt.token_ids for prompt in self._load(trial)}
        distinct = {prompts[row_id(one.request_id, prompts)] for one in generations}
        again = len(generations) - len(distinct)
        found = ", whose earlier answers drafts come from" * learns
        told = f"{again} of {len(generations)} requests ask one of {len(distinct)} prompts again"
        return told + found if again else ""

    def _scores(
        self, trial: Trial, texts: Mapping[str, str], *, is_own: bool
    ) -> dict[str, dict[str, float]]:
        """The task scores of answers by request id; keeps why some have none. `is_own`: the texts
        are the backend's, not decoded here."""
        asked = {prompt.request_id: prompt for prompt in self._load(trial)}
        answered = [asked[row_id(request_id, asked)] for request_id in texts]
        why: dict[int, str] = {}
        ids = list(texts)
        # a chat server's own text has both tags where it told a thought apart, and else no thought
        marked = not is_own or trial.options.get("api") != "chat"
        found = scoring.score_all(
            trial.workload.name,
            [prompt.row.data for prompt in answered],
            list(texts.values()),
            thinks=[marked and scoring.thinks_from_the_start(prompt.text) for prompt in answered],
            unscored=why,
        )
        self._unscored = {ids[place]: reason for place, reason in why.items()}
        return dict(zip(ids, found, strict=True))

    def close(self) -> None:
        """Free the engine."""
        self.backend.close()

    def _text(self, generation: Generation) -> str:
        if generation.label is not None:
            return generation.label.name
        return str(self.tokenizer.decode(generation.token_ids, skip_special_tokens=True))

    def _load(self, trial: Trial) -> list[MeasuredPrompt]:
        key = f"{trial.workload.checksum} {trial.requests}"
        if key not in self._prompts:
            self._prompts[key] = load_prompts(trial, self.tokenizer)
        return self._prompts[key]


def _drawn(sampling: Sampling, place: int) -> Sampling:
    """The sampling of a request: draws of its own, so that a prompt that is asked again is another
    draw of its answer. They are the same in every repeat and for every backend."""
    if sampling.temperature == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + place) % SEEDS)


def _over_and_over(prompts: Sequence[MeasuredPrompt], count: int) -> list[MeasuredPrompt]:
    """The prompts of so many requests: from the first on again, under new ids, where there are
    fewer."""
    ids, found, lap = [prompt.request_id for prompt in prompts], list(prompts), 0
    while len(found) < count:
        lap += 1
        names = asked_again(ids, lap)
        found += [replace(p, request_id=n) for p, n in zip(prompts, names, strict=True)]
    return found[:count]


def _warm_up(
    measured: Sequence[Request], trial: Trial, *, ignore_eos: bool = True
) -> list[Request]:
    """Prompts of the same lengths and tokens in another order: the same work, nothing cached. As
    many as the load has in flight, which may be more than its prompts where it lasts for a time.
    `ignore_eos`: whether their answers can be had of a length that the model does not choose."""
    count = max(WARM_UP_REQUESTS, trial.load.concurrency or 0)
    if trial.duration_s is None or trial.load.is_open:
        count = min(count, len(measured))
    rng = random.Random(trial.seed)
    found = []
    for index in range(count):
        request = measured[index % len(measured)]
        ids = list(request.prompt_ids)
        rng.shuffle(ids)
        found.append(
            replace(
                request,
                id=f"warm-up-{index}",
                prompt_ids=tuple(ids),
                messages=(),  # a chat server would be sent the measured prompt itself
                max_new_tokens=min(WARM_UP_TOKENS, trial.max_new_tokens),
                ignore_eos=ignore_eos,
                arrival_s=0.0,
            )
        )
    return found


def open_session(trial: Trial) -> EngineSession:
    """Load the engine and the tokenizer that a trial needs. Runs in the child process."""
    started = time.monotonic()
    runs_model = backends.load_class(trial.backend).needs_model
    directory = models.resolve(trial.model, weights=runs_model)
    backend = backends.open_backend(trial.backend, directory, trial.model, trial.options)
    tokenizer = models.prompt_tokenizer(directory)
    return EngineSession(
        backend=backend,
        tokenizer=tokenizer,
        stop_ids=models.stop_ids(directory, tokenizer),
        setup_s=time.monotonic() - started,
        directory=directory,
        pass_bytes=_pass_bytes(directory, trial.model.dtype) if runs_model else None,
    )


def _pass_bytes(directory: Path, dtype: str) -> dict[str, int] | None:
    """None for an architecture whose sizes are not known here, which a backend may run all the
    same."""
    try:
        return read_sizes(models.read_config(directory), str(directory)).pass_bytes(dtype)
    except UserError:
        return None
