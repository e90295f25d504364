"""The plain PyTorch reference of early exit, against transformers' own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.core.nouns import Request
from tests.support.exits.exit_models import write_exit_model
from tests.support.exits.exit_reference import Decided, ExitReference, Rule

SCHEDULE = (3, 6, 1, 5, 2, 6, 4, 1)


@pytest.fixture(scope="module", params=["grouped", "biased"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exit_model(tmp_path_factory.mktemp(request.param), request.param)


def ask(name: str, length: int, limit: int = 12) -> Request:
    prompt = torch.randint(96, (length,), generator=torch.Generator().manual_seed(length))
    return Request(name, tuple(prompt.tolist()), limit)


def alone(reference: ExitReference, request: Request, chunk: int = 1000) -> list[int]:
    """The tokens of one request, its prompt in chunks."""
    reference.submit(request)
    start = 0
    found: list[int] = []
    while len(found) < request.max_new_tokens:
        total = len(reference.sequences[request.id].tokens)
        count = min(chunk, total - start)
        found += reference.step({request.id: (start, count)}).tokens.values()
        start += count
    return found


class Skipped(nn.Module):
    """A decoder layer that writes its keys and values and hands on its input."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(self, hidden: torch.Tensor, *args: Any, **named: Any) -> Any:
        self.layer(hidden, *args, **named)
        return hidden


def with_transformers(directory: Path, request: Request, schedule: tuple[int, ...]) -> list[int]:
    """Greedy tokens; at decode step n layers above schedule[n % len] hand on their input."""
    from transformers import AutoModelForCausalLM, DynamicCache

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    layers, cache = list(model.model.layers), DynamicCache()
    found: list[int] = []
    ids = torch.tensor([request.prompt_ids])
    with torch.inference_mode():
        for step in range(request.max_new_tokens):
            runs = len(layers) if step == 0 else schedule[(step - 1) % len(schedule)]
            kept = [*layers[:runs], *(Skipped(layer) for layer in layers[runs:])]
            model.model.layers = nn.ModuleList(kept)
            logits = model(ids, past_key_values=cache, use_cache=True).logits[0, -1]
            found.append(int(logits.argmax()))
            ids = torch.tensor([[found[-1]]])
    return found


def test_full_depth_equals_transformers_generate(directory: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    for length, chunk in [(1, 9), (7, 3), (40, 13), (64, 63)]:
        request = ask("r", length, 16)
        ids = torch.tensor([request.prompt_ids])
        out = model.generate(ids, max_new_tokens=16, do_sample=False, eos_token_id=None)
        reference = ExitReference(directory)
        assert alone(reference, request, chunk) == out[0, length:].tolist()
        assert reference.logit_margin > 1e-4


def test_scheduled_exits_equal_layers_that_hand_on_their_input(directory: Path) -> None:
    request = ask("r", 9, 24)
    truth = with_transformers(directory, request, SCHEDULE)
    reference = ExitReference(directory, Rule("schedule", SCHEDULE))
    assert alone(reference, request) == truth
    assert reference.logit_margin > 1e-4
    assert truth != alone(ExitReference(directory), request)


def test_a_fill_left_out_is_seen_as_no_number(directory: Path) -> None:
    request = ask("r", 9, 24)
    reference = ExitReference(directory, Rule("schedule", SCHEDULE, fill=False))
    alone(reference, request)
    answer = reference.sequences["r"]
    assert bool(answer.keys[5][9:33].isnan().any())
    whole = ExitReference(directory, Rule("schedule", SCHEDULE))
    alone(whole, request)
    assert not any(keys[:32].isnan().any() for keys in whole.sequences["r"].keys)


def test_neighbours_change_the_exit_layer_only_by_their_status(directory: Path) -> None:
    """Two sequences leave where the later one would; each one's own exit is what it has alone
    until histories differ, that is in the first decode step."""
    rule = Rule("softmax", (1, 2, 3, 4, 5), (0.2,) * 5)
    first: list[Decided] = []
    for requests in ([ask("a", 5)], [ask("b", 8)], [ask("a", 5), ask("b", 8)]):
        reference = ExitReference(directory, rule)
        for request in requests:
            reference.submit(request)
        reference.step({r.id: (0, len(r.prompt_ids)) for r in requests})
        first.append(reference.step({r.id: (len(r.prompt_ids), 1) for r in requests}))
    a, b, both = first
    assert both.own == a.own | b.own
    assert both.exit_layer == max(a.exit_layer, b.exit_layer)
    assert not both.mixed


def test_a_step_with_prompt_tokens_runs_whole_and_a_prefix_is_taken_over(directory: Path) -> None:
    reference = ExitReference(directory, Rule("static", (2,)))
    a = ask("a", 8)
    b = Request("b", (*a.prompt_ids[:6], 3, 4), 12)
    reference.submit(a)
    reference.submit(b)
    reference.step({"a": (0, 8)})
    mixed = reference.step({"a": (8, 1), "b": (4, 3)})
    assert (mixed.mixed, mixed.exit_layer) == (True, reference.depth)
    assert list(mixed.tokens) == ["a"]
    last = reference.step({"a": (9, 1), "b": (7, 1)})
    assert last.mixed
    assert last.own == {"a": reference.depth, "b": reference.depth}
    assert last.tokens["b"] == alone(ExitReference(directory), b)[0]
    assert reference.step({"a": (10, 1), "b": (8, 1)}).exit_layer == 2
