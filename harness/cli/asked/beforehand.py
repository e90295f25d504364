"""What prompts and arrivals make of trials, told before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import backends
from backends.checkpoints import models
from backends.replayed import replay_remarks
from harness.cli import wiring
from harness.cli.pins import SCORED_AS_PROGRAMS
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Trial, canonical_json
from harness.experiment.config import Experiment
from workloads import arrivals
from workloads.chat import chat_of
from workloads.datasets import PROMPT_LIMIT, takes
from workloads.measured import MeasuredPrompt, load_prompts
from workloads.sandbox.probe import support


def refuse_unscorable(trials: Sequence[Trial]) -> None:
    """Raise `UserError` where answers of trials are programs that this machine's sandbox cannot
    hold, which else would be found out when the first have been measured."""
    programs = [trial for trial in trials if trial.workload.name in SCORED_AS_PROGRAMS]
    if runs_elsewhere() or all(trial.model.shape or trial.replays for trial in programs):
        return  # answers that say nothing are not scored
    if (problem := support().problem) is not None:
        raise UserError(f"workload {programs[0].workload.name}: cannot be scored here: {problem}")


def refuse_other_chats(trials: Sequence[Trial]) -> None:
    """Raise `UserError` for chat servers, which use the model's template themselves, where that
    would make other prompts than a workload's option `chat` asks for."""
    for trial in trials:
        chat = chat_of(trial.workload)
        if trial.options.get("api") != "chat":
            continue
        where = f"workload {trial.workload.name}: option 'chat': backend '{trial.backend}'"
        if not chat.template:
            raise UserError(f"{where}: template none needs 'api: completions', not chat")
        sent = (trial.options.get("extra_body") or {}).get("chat_template_kwargs", {})
        if chat.arguments and sent != chat.arguments:
            fields = canonical_json({"chat_template_kwargs": chat.arguments})
            raise UserError(
                f"{where}: its server fills the template in: give it 'extra_body: {fields}'"
            )


def too_long(trials: Sequence[Trial]) -> list[str]:
    """A line for the prompts of a workload that, with their answers, are longer than what a
    backend takes, where that is known: such requests fail, and with them their trials. Raises
    `UserError` for data and templates that cannot be used."""
    folders = {model: wiring.model_folder(model) for model in {trial.model for trial in trials}}
    asked: dict[tuple[object, ...], dict[int, Trial]] = {}
    for trial in trials:
        most = backends.longest(trial.backend, folders[trial.model], trial.options)
        if most is not None:
            key = trial.model, trial.workload.checksum, trial.requests, trial.max_new_tokens
            asked.setdefault(key, {}).setdefault(most, trial)
    found: list[str] = []
    for bounds in asked.values():
        one = next(iter(bounds.values()))
        prompts = load_prompts(one, models.prompt_tokenizer(folders[one.model]))
        for most, trial in bounds.items():
            found += _longer(prompts, trial, most)
    return found


def replayed(trials: Sequence[Trial]) -> list[str]:
    """A line for what a backend replays that was not recorded of a workload, or not to its end.
    Raises `UserError` for data that cannot be used."""
    found: list[str] = []
    prompts: dict[tuple[object, ...], list[MeasuredPrompt]] = {}
    alike = {(t.engine_key(), t.workload.checksum, t.max_new_tokens): t for t in trials}
    for trial in alike.values():
        if not isinstance(trial.options.get("replay"), str):
            continue
        directory = wiring.model_folder(trial.model)
        key = trial.model, trial.workload.checksum, trial.requests
        if key not in prompts:
            prompts[key] = load_prompts(trial, models.prompt_tokenizer(directory))
        lines = replay_remarks(trial, directory, prompts[key])
        found += [f"backend '{trial.backend}': option 'replay': {line}" for line in lines]
    return list(dict.fromkeys(found))


def uncompared(trials: Sequence[Trial], experiment: Experiment) -> list[str]:
    """A line where some of an experiment's `trials` replay and the reference never does."""
    reference = experiment.reference
    own = [choice for choice in experiment.backends if choice.name == reference]
    if any(choice.options.get("replay") is not None for choice in own):
        return []
    if not any(trial.replays for trial in trials):
        return []
    hint = "give it a 'replay' too (as 'replay: demo')"
    if "replay" not in backends.load_class(reference).OPTIONS:
        hint = "make one that replays the reference"
    return [
        f"the reference '{reference}' does not replay, and replays are compared with replays "
        f"alone: {hint}, or no replay is compared with the reference"
    ]


def _longer(prompts: Sequence[MeasuredPrompt], trial: Trial, most: int) -> Iterator[str]:
    longer = [p for p in prompts if len(p.token_ids) + p.longest(trial.max_new_tokens) > most]
    if not longer:
        return
    first, name = longer[0], trial.workload.name
    place = first.row.place or first.request_id
    room = most - trial.max_new_tokens
    can = takes(name, PROMPT_LIMIT) and room > 0
    hint = f"; 'prompt_limit: {room}' leaves them out" if can else ""
    yield (
        f"workload {name}: too long with their answers for the {most:,} tokens of backend "
        f"'{trial.backend}' on model '{trial.model.label()}', and bound to fail: "
        f"{len(longer):,} of {len(prompts):,} prompts; first: {place}: "
        f"{len(first.token_ids):,} tokens and up to {first.longest(trial.max_new_tokens):,}{hint}"
    )


def traces(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a line for each trace, by which a wrong unit of its times is seen."""
    for trial in {t.load.trace: t for t in trials if t.load.kind == "trace"}.values():
        times = arrivals.of_trial(trial)
        rate = f", {(len(times) - 1) / times[-1]:,.4g} a second" if times[-1] else ""
        yield (f"trace '{trial.load.trace}': {len(times):,} arrivals over {times[-1]:,.4g} s{rate}")
