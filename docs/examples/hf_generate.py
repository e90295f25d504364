"""`hf-generate`: transformers' own `generate`, streamed. Copy it to backends/, add to `BACKENDS`:
"hf-generate": "backends.hf_generate:HfGenerate",
"""

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from harness.core.backend import Backend, Option, misfit
from harness.core.nouns import BackendInfo, Commit, Model, Request


class HfGenerate(Backend):
    """One request after the other. `families` may name what else `AutoModelForCausalLM` loads."""

    OPTIONS: ClassVar = {"threads": Option(int, None, "CPU threads; default: torch's", minimum=1)}
    families = frozenset({"LlamaForCausalLM"})

    def __init__(self, model: Any, version: str, options: Mapping[str, Any]) -> None:
        self.info = BackendInfo("hf-generate", version, "official code", options, lossless=True)
        self._model, self._dropped = model, threading.Event()
        self._waiting, self._commits = deque[Request](), deque[Commit]()
        self._thread = threading.Thread()

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        import torch
        import transformers as hf

        torch.set_num_threads(options["threads"] or torch.get_num_threads())
        load, dtype = hf.AutoModelForCausalLM.from_pretrained, getattr(torch, model.dtype)
        return cls(load(model_dir, dtype=dtype), hf.__version__, options)

    def submit(self, request: Request) -> None:
        config = self._model.config
        refused = misfit(request, config.max_position_embeddings, config.vocab_size)
        self._commits.append(refused) if refused else self._waiting.append(request)

    def poll(self) -> list[Commit]:
        if self._waiting and not self._thread.is_alive():
            self._thread = threading.Thread(target=self._generate, args=[self._waiting.popleft()])
            self._thread.start()
        return [self._commits.popleft() for _ in range(len(self._commits))]

    def reset(self) -> None:
        self._waiting.clear()
        self._dropped.set()
        while self._thread.is_alive():
            self.wait(1)
        self._dropped.clear()
        self.poll()

    def _generate(self, request: Request) -> None:
        import torch

        stops = [] if request.ignore_eos else list(request.stop_ids)
        left, asked = request.max_new_tokens + 1, request.sampling  # the prompt comes first

        def put(token: torch.Tensor) -> None:
            nonlocal left
            left -= 1
            if left < request.max_new_tokens:
                ended: Any = "stop" if int(token) in stops else None if left else "length"
                self._commits.append(Commit(request.id, (int(token),), ended))

        prompt, _ = torch.tensor([request.prompt_ids]), torch.manual_seed(asked.seed)
        sampled = {"do_sample": True, "temperature": asked.temperature, "top_p": asked.top_p}
        try:
            self._model.generate(
                prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, eos_token_id=stops,
                max_new_tokens=request.max_new_tokens, **(sampled if asked.temperature > 0 else {}),
                stopping_criteria=[lambda ids, _: torch.tensor([self._dropped.is_set()])],
                streamer=SimpleNamespace(put=put, end=lambda: None),
            )  # fmt: skip
        except Exception as error:
            self._commits.append(Commit(request.id, (), "error", error=str(error)))
