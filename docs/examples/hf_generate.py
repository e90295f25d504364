"""`hf-generate`: transformers' own `generate`, one request after the other, streamed.

To try it, copy this file to backends/ and add to `BACKENDS`:
    "hf-generate": "backends.hf_generate:HfGenerate",
"""

import queue
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from harness.core.backend import Backend, Option, misfit
from harness.core.nouns import BackendInfo, Commit, Model, Request


class HfGenerate(Backend):
    """Any causal language model that transformers can load."""

    OPTIONS: ClassVar = {"threads": Option(int, None, "CPU threads; default: torch's", minimum=1)}

    def __init__(self, model: Any, version: str, options: Mapping[str, Any]) -> None:
        self.info = BackendInfo("hf-generate", version, "official code", options, lossless=True)
        self._model, self._dropped = model, threading.Event()
        self._waiting, self._commits = deque[Request](), queue.SimpleQueue[Commit]()
        self._thread = threading.Thread()

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        import torch
        import transformers as hf

        torch.set_num_threads(options["threads"] or torch.get_num_threads())
        dtype = getattr(torch, model.dtype)
        loaded = hf.AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
        return cls(loaded, hf.__version__, options)

    def submit(self, request: Request) -> None:
        config = self._model.config
        refused = misfit(request, config.max_position_embeddings, config.vocab_size)
        self._commits.put(refused) if refused else self._waiting.append(request)

    def poll(self) -> list[Commit]:
        if self._waiting and not self._thread.is_alive():
            self._thread = threading.Thread(target=self._generate, args=[self._waiting.popleft()])
            self._thread.start()
        return [self._commits.get() for _ in range(self._commits.qsize())]

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
        left = request.max_new_tokens + 1  # the prompt comes first

        def put(token: torch.Tensor) -> None:
            nonlocal left
            left -= 1
            if left < request.max_new_tokens:
                ended: Any = "stop" if int(token) in stops else None if left else "length"
                self._commits.put(Commit(request.id, (int(token),), ended))

        prompt, chosen = torch.tensor([request.prompt_ids]), request.sampling
        more: dict[str, Any] = {"max_new_tokens": request.max_new_tokens, "eos_token_id": stops}
        if chosen.temperature > 0:
            torch.manual_seed(chosen.seed)
            more |= {"do_sample": True, "temperature": chosen.temperature, "top_p": chosen.top_p}
        more["stopping_criteria"] = [lambda ids, _: torch.tensor([self._dropped.is_set()])]
        more["streamer"] = SimpleNamespace(put=put, end=lambda: None)
        self._model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, **more)
