"""The model class that leaves early: vLLM's Llama, run segment by segment.

Algorithm 1 of "An Efficient Inference Framework for Early-exit Large Language Models", section 3.1.
Each sequence of an iteration has a status that starts false and stays true once its confidence
has passed a threshold. When all are true the iteration ends: every sequence is decoded from
that layer's hidden state, which also fills the caches of the layers left out. An iteration that
reads prompt tokens runs at full depth.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from vllm.compilation.decorators import ignore_torch_compile
from vllm.model_executor.models.llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaModel

from backends.checkpoints.exit_heads import HeadFolder, open_folder
from backends.early_exit.fill.fill import Filling
from backends.early_exit.plugin.control import Control
from backends.early_exit.plugin.handover import make_handover
from backends.early_exit.plugin.heads import FoldedHeads
from backends.early_exit.plugin.norm import rms_norm
from backends.early_exit.plugin.projection import Projection
from backends.early_exit.plugin.segments import build_segments, graphs_of
from backends.early_exit.plugin.telemetry import DecodedStep

SETTINGS = "early_exit"
"""Key of the plugin's part in vLLM's `additional_config`; it has `exits`, a list of layers, and
`heads` where trained ones are asked: `folder`, `model` (its folder) and `layers`."""


@ignore_torch_compile
class EarlyExitLlamaModel(LlamaModel):  # type: ignore[misc]
    """The layers, cut at the exits. `control` decides where a step leaves."""

    control: Control

    def __init__(
        self, exits: Sequence[int], *, vllm_config: Any, prefix: str = "", **arguments: Any
    ) -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix, **arguments)
        self.depth, self.exits = len(self.layers), tuple(exits)
        self.segments = build_segments(self, exits, vllm_config, prefix)
        self.runs = graphs_of(self.segments, vllm_config)
        self.handover = make_handover(vllm_config)
        self.filling: Filling | None = None

    def build_filling(self) -> None:
        """Stack the projections that fill the caches. The layers' weights must be as loaded."""
        self.filling = Filling(self.layers, self.exits)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """All layers: (tokens,) to (tokens, width), what the head reads."""
        hidden, residual = input_ids, None
        for segment in self.runs:
            hidden, residual = self._run(segment, positions, hidden, residual)
        return hidden

    def decode(self, input_ids: Tensor, positions: Tensor, step: DecodedStep) -> Tensor:
        """As `forward`, for a step that decodes one token of each sequence and may leave early."""
        control, depth = self.control, self.depth
        bounds, measure, forced = control.bounds, control.measure, control.forced_layer()
        if forced == depth and not bounds:
            return self(input_ids, positions)  # type: ignore[no-any-return]
        if measure is not None and measure.reads_embedding:
            measure.begin(self.embed_input_ids(input_ids))
        hidden, residual = input_ids, None
        for segment, layer in zip(self.runs, (*self.exits, depth), strict=True):
            hidden, residual = self._run(segment, positions, hidden, residual)
            if layer == depth:
                break
            if layer >= forced:
                step.own_exits = [layer] * len(step.names)
                return self._leave(layer, hidden + residual, None, positions, step)
            if layer not in bounds or measure is None:
                continue
            stream = hidden + residual
            began = control.now()
            answer = measure(layer, stream)
            left = control.latch(layer, answer.confidence, step)
            step.check_ns += control.now() - began
            if left:
                control.logits = answer.logits
                return self._leave(layer, stream, answer.normed, positions, step)
        return hidden

    def _leave(
        self,
        layer: int,
        stream: Tensor,
        normed: Tensor | None,
        positions: Tensor,
        step: DecodedStep,
    ) -> Tensor:
        began = self.control.now()
        assert self.filling is not None
        self.filling(layer, stream, positions)
        step.exit_layer, step.fill_ns = layer, self.control.now() - began
        return self.final_norm(stream) if normed is None else normed

    def final_norm(self, stream: Tensor) -> Tensor:
        """(rows, width): what the head reads at an exit with this residual stream."""
        return rms_norm(stream, self.norm.weight.data, self.norm.variance_epsilon)

    def _run(
        self, segment: Any, positions: Tensor, hidden: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Any]:
        """The next segment on what the last one left; the first one on token ids."""
        if residual is None:
            hidden, residual = segment(positions, hidden)
            return hidden, residual
        if self.handover is not None:
            hidden, residual = self.handover(hidden, residual)
        hidden, residual = segment(positions, hidden, residual)
        return hidden, residual


class EarlyExitLlamaForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """The whole model, with the head. Without exits it is vLLM's own in one piece, and one graph
    where vLLM would take one: inside this class, which counts the steps."""

    def __init__(self, *, vllm_config: Any, prefix: str = "", **arguments: Any) -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix, **arguments)
        self.control = Control(len(self.model.layers))
        self.heads = FoldedHeads()
        self.asked_heads = (vllm_config.additional_config or {}).get(SETTINGS, {}).get("heads")
        self.leaves = isinstance(self.model, EarlyExitLlamaModel)
        if self.leaves:
            self.model.control = self.control
        self.whole = [self.model] if self.leaves else graphs_of([self.model], vllm_config)

    def _init_model(
        self, vllm_config: Any, prefix: str = "", layer_type: Any = LlamaDecoderLayer
    ) -> LlamaModel:
        arguments = {"vllm_config": vllm_config, "prefix": prefix, "layer_type": layer_type}
        exits = (vllm_config.additional_config or {}).get(SETTINGS, {}).get("exits")
        return EarlyExitLlamaModel(exits, **arguments) if exits else LlamaModel(**arguments)

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers after which a step can leave."""
        return self.model.exits if self.leaves else ()

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """(tokens, width): the hidden states that the head reads, after the final norm."""
        control = self.control
        step = control.begin()
        began = control.now()
        out: Tensor
        if step is None or step.mixed or not self.leaves:
            out = self.whole[0](input_ids, positions, intermediate_tensors, inputs_embeds)
        else:
            out = self.model.decode(input_ids, positions, step)
        if step is not None:
            step.forward_ns = control.now() - began
        return out

    @property
    def fill_path(self) -> str | None:
        """How the fill reaches the caches (`Filling.path`); None without exits."""
        return self.model.filling.path(self.exits[-1]) if self.leaves else None

    def prepare_filling(self) -> None:
        """Stack the projections of the fill, where no weights were loaded from files."""
        if self.leaves and self.model.filling is None:
            self.model.build_filling()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load, and make what vLLM knows nothing of: the fill's projections, and trained heads.
        What is made here it counts as the model's when it sizes its cache."""
        loaded: set[str] = super().load_weights(weights)
        self.prepare_filling()
        if (asked := self.asked_heads) is not None:
            folder = Path(asked["folder"])
            opened = partial(open_folder, folder, Path(asked["model"]))
            self.heads_of(folder, asked["layers"], opened)
        return loaded | {name for name, _ in self.named_parameters() if ".filling." in name}

    def heads_of(
        self, folder: Path, layers: Collection[int], opened: Callable[[], HeadFolder]
    ) -> dict[int, Projection]:
        """The trained heads of a folder after these layers at least; see `FoldedHeads.of`."""
        return self.heads.of(folder, layers, opened, self.lm_head.weight[: self.config.vocab_size])

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """(rows, vocabulary). The exit's own where its check has computed them already."""
        logits = self.control.logits
        if logits is not None and len(logits) >= len(hidden_states):
            self.control.logits = None
            return logits[: len(hidden_states)]
        computed: Tensor | None = super().compute_logits(hidden_states)
        return computed
