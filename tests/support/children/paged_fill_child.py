"""The fill by one kernel against vLLM's rotary embedding and a write layer by layer, and its
product; prints one JSON line. vLLM changes the process that it runs in, so it stays out of
the test process."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

from backends.early_exit.fill import paged as paged_fill
from backends.early_exit.plugin import projection

LAYERS, HEADS, SIZE, BLOCKS, BLOCK = 4, 2, 16, 3, 8
SLOTS = [17, 0, -1]
"""The third row is padding."""


def layer(number: int, rotary: Any) -> Any:
    """What the fill reads of one of vLLM's decoder layers."""
    cache = torch.full((BLOCKS, HEADS, BLOCK, 2 * SIZE), float("nan"))
    attn = SimpleNamespace(
        kv_cache=cache, head_size=SIZE, num_kv_heads=HEADS, layer_name=f"layer {number}"
    )
    return SimpleNamespace(self_attn=SimpleNamespace(attn=attn, rotary_emb=rotary))


def main() -> None:
    """Write three of four layers, move the caches, write again."""
    with set_current_vllm_config(VllmConfig()):
        rotary = get_rope(SIZE, 64, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    layers = [layer(number, rotary) for number in range(LAYERS)]
    context = SimpleNamespace(slot_mapping={"layer 3": torch.tensor(SLOTS)})
    setattr(paged_fill, "get_forward_context", lambda: context)  # noqa: B010
    kv = torch.randn(4, 2 * 3 * HEADS * SIZE)
    positions = torch.tensor([5, 60, 0, 1])
    fill = paged_fill.PagedFill(layers)
    found: dict[str, Any] = {"on a CPU": str(paged_fill.paged_fill(layers))}
    for name in ("first", "moved"):
        fill.write(kv, positions)
        found[name] = max(difference(layers[n], n - 1, kv, positions, rotary) for n in (1, 2, 3))
        found[f"{name} untouched"] = bool(layers[0].self_attn.attn.kv_cache.isnan().all())
        for one in layers:
            one.self_attn.attn.kv_cache = torch.full_like(one.self_attn.attn.kv_cache, torch.nan)
    found |= projections()
    print(json.dumps(found))


def projections() -> dict[str, float]:
    """How far the product with rows of one weight, as on a GPU, and with packed copies are from the
    rows of the whole product."""
    weight, bias, x = torch.randn(24, 32), torch.randn(24), torch.randn(3, 32)
    whole = torch.nn.functional.linear(x, weight, bias)
    found = {}
    for name, on_cpu in (("packed copies", True), ("one weight", False)):
        setattr(projection, "current_platform", SimpleNamespace(is_cpu=lambda on=on_cpu: on))  # noqa: B010
        stacked = projection.StackedProjection(weight, bias, [0, 8, 16])
        gaps = [(stacked(x, start) - whole[:, start:]).abs().max() for start in (0, 8, 16)]
        found[name] = float(max(gaps))
    return found


def difference(
    layer: Any, place: int, kv: torch.Tensor, positions: torch.Tensor, rotary: Any
) -> float:
    """The largest, from what vLLM's own calls would have written; infinite for other rows."""
    keys, values = kv.view(4, 3, 2, HEADS * SIZE)[:, place].unbind(1)
    turned, _ = rotary.forward_native(positions, keys.clone(), None)
    wanted = torch.full((BLOCKS, HEADS, BLOCK, 2 * SIZE), float("nan"))
    for row, slot in enumerate(SLOTS):
        if slot >= 0:
            pair = turned[row].view(HEADS, SIZE), values[row].view(HEADS, SIZE)
            wanted[slot // BLOCK, :, slot % BLOCK] = torch.cat(pair, -1)
    got = layer.self_attn.attn.kv_cache
    if not torch.equal(got.isnan(), wanted.isnan()):
        return float("inf")
    return float((got - wanted).nan_to_num().abs().max())


if __name__ == "__main__":
    main()
