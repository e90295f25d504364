"""The systems under test. `BACKENDS` is the whole registry; modules load when a backend is used."""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from harness.core.backend import Backend
from harness.core.errors import UserError, nearest
from harness.core.files import read_text
from harness.core.nouns import Answer, Model
from workloads import workload_info

BACKENDS: dict[str, str] = {
    "adadecode": "backends.own.adadecode:AdaDecode",
    "autoregressive": "backends.own.autoregressive:Autoregressive",
    "classifier": "backends.classifiers.one_device:PlainClassifier",
    "classifier-early-exit": "backends.classifiers.one_device:EarlyExitClassifier",
    "http": "backends.http.backend:HttpBackend",
    "own-early-exit": "backends.own.exits.backend:OwnEarlyExit",
    "scripted": "backends.scripted:ScriptedBackend",
    "speculative": "backends.own.speculative:Speculative",
    "tetris": "backends.tetris.serving.backend:Tetris",
    "tetris-classifier": "backends.tetris.labels.backend:TetrisClassifier",
    "vllm": "backends.vllm.backend:VllmBackend",
    "vllm-early-exit": "backends.early_exit.backend:VllmEarlyExit",
    "vllm-speculative": "backends.vllm.speculative:VllmSpeculative",
}


def load_class(name: str) -> type[Backend]:
    """The class behind `name`, its module imported. Raises `UserError` for an unknown name and for
    a module that cannot be imported."""
    if name not in BACKENDS:
        raise UserError(f"unknown backend '{name}': {nearest(name, BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    try:
        return cast(type[Backend], getattr(importlib.import_module(module), attribute))
    except (ImportError, SyntaxError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"backend '{name}': {module} cannot be imported: {told}") from error


def about(name: str) -> str:
    """What a backend is, as its class says first; empty of one that cannot be loaded here."""
    try:
        told = load_class(name).__doc__ or ""
    except UserError:
        return ""
    return " ".join(told.partition("\n\n")[0].split())


@contextmanager
def asking(name: str, what: str) -> Iterator[None]:
    """While a class is asked for something: what it raises by mistake becomes a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"backend '{name}': its '{what}' failed: {told}") from error


def settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of backend `name`: those given, the others at their defaults."""
    known = load_class(name).OPTIONS
    return {key: option.default for key, option in known.items()} | dict(options)


def check_options(name: str, options: Mapping[str, Any], model_dir: Path | None = None) -> None:
    """Raise `UserError` for an option that `name` does not have, a value that it cannot take, and,
    where the model's folder is known, for a model that it cannot run with these options."""
    cls = load_class(name)
    for key, value in options.items():
        if key not in cls.OPTIONS:
            raise UserError(
                f"backend '{name}': unknown option '{key}': {nearest(key, cls.OPTIONS)}"
            )
        cls.OPTIONS[key].check(f"backend '{name}': option '{key}'", value)
    if model_dir is not None and cls.families is not None:
        _check_family(name, model_dir, cls.families)
    with asking(name, "check"):
        cls.check(model_dir, settings(name, options))


def batch_decides(name: str, options: Mapping[str, Any]) -> bool:
    """Whether answers of backend `name` may depend on what is decoded beside them. Raises
    `UserError`."""
    with asking(name, "batch_decides"):
        return bool(load_class(name).batch_decides(settings(name, options)))


def warnings(name: str, model: Model, options: Mapping[str, Any]) -> list[str]:
    """What the user probably did not mean by these options of backend `name`, one line each.
    Raises `UserError` for what it cannot run."""
    from backends.checkpoints import models

    cls = load_class(name)
    directory = models.resolve(model, weights=cls.needs_model)
    found, chosen = warnings_on(directory, name, model, options), settings(name, options)
    with suppress(UserError), asking(name, "files"):
        found += _half_trained(cls.files(directory, chosen))
    with asking(name, "dtype_warnings"):
        return found + cls.dtype_warnings(directory, chosen, model.dtype)


def warnings_on(directory: Path, name: str, model: Model, options: Mapping[str, Any]) -> list[str]:
    """What `warnings` says, of a model in `directory`, but for what depends on its files or its
    dtype. A shape needs no weights there: none are made beside it either."""
    cls = load_class(name)
    check_options(name, options)
    if model.shape:  # before heads and classifiers are looked for, which no shape has
        with asking(name, "check_shape"):
            cls.check_shape(directory, settings(name, options))
    check_options(name, options, directory)
    with asking(name, "warnings"):
        return [str(line) for line in [*cls.warnings(directory, settings(name, options))]]


def _half_trained(files: Iterable[Path]) -> list[str]:
    """A line for each folder of trained weights among these whose training was stopped."""
    from backends.checkpoints.bound_files import MOST_BYTES, REPORTS

    found = []
    for folder in dict.fromkeys(Path(path).parent for path in files):
        for report in REPORTS:
            try:
                told = json.loads(read_text(folder / report, MOST_BYTES))
            except (OSError, ValueError, UserError, RecursionError):  # opening it says so
                continue
            if isinstance(told, dict) and told.get("finished") is False:
                found.append(
                    f"{folder}: its training was stopped before its end; the same 'decodebench "
                    "train' command goes on with it"
                )
    return found


def longest(name: str, model_dir: Path, options: Mapping[str, Any]) -> int | None:
    """Tokens that a prompt and its answer may have together on backend `name`; None where nothing
    says, as of positions that an engine may stretch. Raises `UserError`."""
    from backends.checkpoints import models

    most = load_class(name).CONTEXT
    chosen: int | None = settings(name, options).get("max_model_len")
    if most is None or chosen is not None:
        return chosen
    config = models.read_config(model_dir)
    positions = config.get("max_position_embeddings")
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    stretched = "factor" in rope and rope.get("rope_type", rope.get("type")) != "llama3"
    if not isinstance(positions, int) or (stretched and most > positions):
        return None
    return int(min(positions, most))


def check_workload(name: str, workload: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for a workload that backend `name` cannot run with these options."""
    asked, gives = workload_info(workload).answer, load_class(name).answers
    if asked != gives:
        able = [other for other in BACKENDS if answers_with(other) == asked]
        raise UserError(
            f"backend '{name}': answers with {_WORDS[gives]}, and workload '{workload}' asks for "
            f"{_WORDS[asked]}; {nearest(name, able)}"
        )
    with asking(name, "check_workload"):
        load_class(name).check_workload(workload, settings(name, options))


_WORDS = {"tokens": "text", "label": "labels"}


def answers_with(name: str) -> Answer:
    """What a backend answers with; "tokens", the default, for one that cannot be imported."""
    try:
        return load_class(name).answers
    except UserError:
        return "tokens"


def open_backend(
    name: str, model_dir: Path | None, model: Model, options: Mapping[str, Any]
) -> Backend:
    """Check `options`, then load the backend. Raises `UserError` for bad input."""
    cls = load_class(name)
    if cls.needs_model and model_dir is None:
        raise UserError(f"backend '{name}' needs a model, and '{model.name}' has no local copy")
    check_options(name, options, model_dir)
    return cls.open(model_dir, model, settings(name, options))


def _check_family(name: str, model_dir: Path, families: Collection[str]) -> None:
    from backends.checkpoints import models

    found = models.architecture(model_dir)
    if found not in families:
        raise UserError(
            f"backend '{name}': {model_dir / 'config.json'}: architecture "
            f"{found or '(none named)'} is not one that it takes; expected one of: "
            f"{', '.join(sorted(families))}"  # none is near: it is no typing error
        )
