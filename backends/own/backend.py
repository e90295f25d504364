"""Our own engine as a backend: what `autoregressive` and `adadecode` have in common."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backends.checkpoints import models, traces
from backends.engine.model.architecture import (
    FAMILIES,
    Architecture,
    EngineError,
    read_architecture,
)
from backends.own.decisions import Recorder, Replayer
from backends.pass_clock import PassClock
from harness.core.backend import Backend, Option, misfit
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import REPLAYED, BackendInfo, Commit, Measured, Model, Request
from harness.core.processes.cores import usable_cores

LONGEST = 4096
"""Default of `max_model_len` for models that are meant for longer sequences. A GPU reserves as much
for each slot; on a CPU a sequence costs what it fills."""
PASSES = ("read", "segment", "exit_head", "greedy", "advance", "whole", "logits", "fill")
"""What an executor does; see `backends.engine.executors.base.Executor`."""
TREE_PASSES = ("run", "logits", "keep")
"""What it does with trees of guesses."""
LANES = 16
"""Outputs that the native kernels compute at once."""
KERNELS = ("auto", "native", "torch", "triton")

OPTIONS: dict[str, Option] = {
    "max_model_len": Option(
        int, None, f"longest prompt and answer; default: the model's, at most {LONGEST}", minimum=2
    ),
    "max_num_seqs": Option(int, 32, "requests in the cache at once", minimum=1),
    "prefill_tokens": Option(
        int, 512, "prompt tokens read between two steps; a GPU reads a prompt whole", minimum=1
    ),
    "kernels": Option(
        str, "auto", "auto: triton on a GPU, else native (C++; odd sizes: torch)", choices=KERNELS
    ),
    "threads": Option(int, None, "CPU threads; default: usable cores", minimum=1, maximum=1024),
    "replay": traces.REPLAY,
}
"""What both backends offer."""


class EngineBackend(Backend):
    """A decoder as a backend. One poll is as many of its steps as it takes to verify a token."""

    families = frozenset(FAMILIES)
    CONTEXT = LONGEST
    PASSES: ClassVar[Sequence[str]] = PASSES
    """Methods of the executor whose time is the model's."""

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for sizes at which torch would stand in for the kernels: what a shape
        is run for is their cost."""
        if options["kernels"] != "auto" or runs_elsewhere() or device() != "cpu":
            return
        try:
            architecture = read_architecture(model_dir)
        except EngineError as error:
            raise UserError(str(error)) from None
        if misfit := _misfit(architecture):
            raise UserError(
                f"{model_dir / 'config.json'}: {misfit}; 'kernels: torch' measures torch in their "
                "place"
            )

    def __init__(
        self,
        decoder: Any,
        executor: Any,
        info: BackendInfo,
        eos: Sequence[int],
        decided: Recorder | Replayer | None = None,
    ) -> None:
        self._decoder, self._executor, self.info = decoder, executor, info
        self._eos = frozenset(eos)
        self._decided = decided
        self._refused: list[Commit] = []
        self._clock = PassClock()
        self._clock.watch(executor, *self.PASSES)
        if executor.trees is not None:
            self._clock.watch(executor.trees, *TREE_PASSES)
        self._live: dict[str, list[int]] = {}
        """By request: tokens of its prompt, and of its answer so far."""

    def submit(self, request: Request) -> None:
        """Queue a request; one that cannot be served whole comes back as an error commit."""
        from backends.engine.sampling import TokenSampling
        from backends.engine.streams import Stream

        vocabulary = self._executor.architecture.vocabulary
        if self._decided is not None:
            request = self._decided.folded(request, vocabulary)
        refused = misfit(request, self._executor.max_len, vocabulary)
        if refused is not None:
            self._refused.append(refused)
            return
        chosen = request.sampling
        self._live[request.id] = [len(request.prompt_ids), 0]
        stream = Stream(
            request.id,
            tuple(request.prompt_ids),
            request.max_new_tokens,
            frozenset() if request.ignore_eos else self._eos.union(request.stop_ids),
            TokenSampling(chosen.temperature, chosen.top_p, chosen.seed),
        )
        if self._decided is not None:
            self._decided.enter(stream, request)
        self._decoder.add(stream)

    def poll(self) -> list[Commit]:
        """Prompts that found a place, or tokens of those under way."""
        commits, self._refused = self._refused, []
        commits += map(self._commit, self._decoder.step())
        return commits if self._decided is None else self._decided.told(commits)

    def reset(self) -> None:
        """Forget unfinished requests. No cache outlives its request."""
        self._refused.clear()
        self._live.clear()
        self._clock.clear()
        self._decoder.reset()
        if self._decided is not None:
            self._decided.reset()

    def _commit(self, output: Any) -> Commit:
        live = self._live[output.id]
        if not live[1]:
            self._clock.begin(output.id)
        live[1] += len(output.tokens)
        counts = output.counts
        if output.finished is not None:
            del self._live[output.id]
            counts = {**counts, **self._clock.end(output.id, *live)}
        return Commit(output.id, output.tokens, output.finished, counts)

    def close(self) -> None:
        """Free the model."""
        self._executor.close()


class Loaded:
    """A checkpoint's weights, and executors made from them.

    Raises `UserError` for a checkpoint or options that the engine cannot take.
    """

    def __init__(
        self, name: str, model_dir: Path, model: Model, options: Mapping[str, Any]
    ) -> None:
        import torch

        self._name, self._settings = name, options
        replay = options["replay"]
        self.source = None if replay is None else traces.open_source(replay, name)
        """What decides in the place of the model."""
        self.decided: Recorder | Replayer | None = None
        """Who sees what is decided, where a backend sets one before it makes a drafter."""
        self.beside: list[Any] = []
        """Executors of models that draft, which a backend closes first."""
        self.stop_ids = models.stop_ids(model_dir)
        self.device = device()
        # a container's quota on processor time is nothing that OpenMP sees
        torch.set_num_threads(options["threads"] or min(usable_cores(), torch.get_num_threads()))
        try:
            self.architecture = read_architecture(model_dir)
            self.max_len = longest(self.architecture, options)
            self.kernels = self._kernels(options["kernels"])
            self.weights = self._read_weights(model_dir, getattr(torch, model.dtype))
        except EngineError as error:
            raise UserError(f"backend '{name}': {error}") from None

    def executor(self, heads: Sequence[Any] = (), slots: int | None = None) -> Any:
        """An `Executor` with these exit heads, and `max_num_seqs` slots unless told otherwise."""
        slots = slots or self._settings["max_num_seqs"]
        room: dict[str, Any] = {"slots": slots, "max_len": self.max_len}
        try:
            if self.kernels == "native":
                from backends.engine.executors.native import NativeExecutor

                return NativeExecutor(
                    self.weights,
                    self.architecture,
                    heads,
                    **room,
                    threads=self._settings["threads"],
                )
            if self.kernels == "triton":
                from backends.engine.executors.cuda import CudaExecutor
                from backends.engine.executors.cuda_calls.layers import rows_for

                room["rows"] = rows_for(self._settings["max_num_seqs"])
                return CudaExecutor(self.weights, self.architecture, heads, **room)
            from backends.engine.executors.torch import TorchExecutor

            return TorchExecutor(self.weights, self.architecture, heads, **room)
        except EngineError as error:
            raise UserError(f"backend '{self._name}': {error}") from None

    def info(
        self,
        executor: Any,
        options: Mapping[str, Any],
        measured: Measured = Measured(),  # noqa: B008
        *,
        lossless: bool = True,
    ) -> BackendInfo:
        """The backend, described with the options that took effect."""
        return BackendInfo(
            name=self._name,
            version=importlib.metadata.version("decodebench"),
            provenance=REPLAYED if self.source is not None else "re-implementation",
            options={
                **self._settings,
                "max_model_len": self.max_len,
                "kernels": executor.kernels,
                **options,
            },
            lossless=lossless and self.source is None,
            measured=measured,
        )

    def _read_weights(self, model_dir: Path, dtype: Any) -> Any:
        """In the one form that the executors read."""
        if self.kernels == "native":
            from backends.engine.model.packed import load_packed

            return load_packed(model_dir, self.architecture, dtype)
        from backends.engine.model.weights import load_weights

        return load_weights(model_dir, self.architecture, dtype, self.device)

    def _kernels(self, asked: str) -> str:
        from backends.kernels.cpu import native

        _check_kernels(asked, self.device)
        if self.device != "cpu" or asked in ("torch", "triton"):
            return "triton" if asked == "auto" else asked
        if asked == "auto" and _misfit(self.architecture):
            return "torch"
        try:  # torch in their place would share a row with trials that had them
            native.library()
        except native.NativeUnavailableError as error:
            told = f"cannot be built here: {error}; 'torch' needs no compiler and is slower"
            raise EngineError(f"kernels: 'native' {told}") from None
        return "native"


def check_fit(name: str, model_dir: Path, chosen: Mapping[str, Any], on: str = "") -> Architecture:
    """The checkpoint's shape, after every check that needs no weights, for a device (`device` where
    none is named). Raises `UserError` for a checkpoint, length or kernels that cannot be taken."""
    try:
        shape = read_architecture(model_dir)
        longest(shape, chosen)
        if not runs_elsewhere():
            _check_kernels(chosen["kernels"], on or device())
            if chosen["kernels"] == "native" and (misfit := _misfit(shape)):
                raise EngineError(misfit)
    except EngineError as error:
        raise UserError(f"backend '{name}': {error}") from None
    return shape


def _misfit(shape: Architecture) -> str | None:
    """Why the native kernels cannot take these sizes; None where they can."""
    for name in ("width", "feed_forward", "head_dim"):
        if (size := getattr(shape, name)) % LANES:
            return f"{name} {size}: the native kernels need a multiple of {LANES}"
    return None


def device() -> str:
    """What models run on here: cpu or cuda."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def longest(shape: Architecture, chosen: Mapping[str, Any]) -> int:
    """Positions of a sequence. Raises `EngineError` for more than the model has."""
    found: int = chosen["max_model_len"] or min(shape.positions, LONGEST)
    if found > shape.positions:
        raise EngineError(f"max_model_len {found} exceeds the model's {shape.positions} positions")
    return found


def _check_kernels(asked: str, device: str) -> None:
    if asked == "triton" and device == "cpu":
        raise EngineError("kernels: 'triton' needs a CUDA device; expected native or torch")
    if asked == "native" and device != "cpu":
        raise EngineError("kernels: 'native' runs on CPUs; expected triton or torch")
