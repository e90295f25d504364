"""Are sampled tokens the model's, whatever was drafted? A chi-square test of each system.

    python benchmarks/soundness/first_tokens.py [--systems vllm "vllm-speculative ngram" ...]
                                                [--tokens 20000] [--temperature 1] [--top-p 1]

Each system goes on with the same few texts under many seeds. The first token of an answer comes
from the prompt; the second is the first that a draft was verified against, and `--length` says how
many follow. Tokens after the same prompt and prefix are held against the model's probabilities
there, which transformers computes in float32, and the statistics of all prefixes add up. Printed
for each position: the statistic, its degrees of freedom and p value. Exit code 1 when a p value is
below 1e-6, 2 for a system that drafted nothing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.chi_square import NOTHING, ChiSquare, fit, joined
from harness.core.nouns import Generation, Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from workloads import WORKLOADS
from workloads.bundled import rows

DEMO = models.BUNDLED["demo"]
PROMPTS = (("cnn_dailymail", 1, 64), ("xsum", 1, 40), ("humaneval", 0, 16), ("gsm8k", 1, 16))
"""Workload, row and tokens: texts broken off where the model is in doubt how they go on, by words
that came up before, so that a lookup has something to draft."""
SMALL = {"kv_cache_gib": 0.25, "max_num_seqs": 64, "prefix_caching": True}
DRAFTS = {"drafts": 3}
LOOKUP = {"method": "ngram", "lookup_min": 1, **DRAFTS}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm": ("vllm", SMALL),
    "vllm-speculative draft_model": ("vllm-speculative", SMALL | DRAFTS),
    "vllm-speculative draft_model probabilistic": (
        "vllm-speculative",
        SMALL | DRAFTS | {"speculative": {"draft_sample_method": "probabilistic"}},
    ),
    "vllm-speculative ngram": ("vllm-speculative", SMALL | LOOKUP),
    "vllm-speculative eagle3": ("vllm-speculative", SMALL | {"method": "eagle3", **DRAFTS}),
    "autoregressive": ("autoregressive", {}),
    "speculative draft_model": ("speculative", {"threshold": 0.0, **DRAFTS}),
    "speculative eagle3": ("speculative", {"method": "eagle3", "threshold": 0.0, **DRAFTS}),
}
CONCURRENCY = 64
LEAST_SEEN = 50
"""Prefixes that were seen less often are left out."""
SURE = 1e-6
"""A p value below this is no accident."""
Prefix = tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--tokens", type=int, default=20_000, help="first tokens after a draft")
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    chosen = parser.parse_args()
    prompts = {name: prompt(name, row, tokens) for name, row, tokens in PROMPTS}
    # vLLM 0.32 cannot load a second engine into a process
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        result = list(alone.map(partial(examined, prompts=prompts, chosen=chosen), chosen.systems))
    print(json.dumps(result))
    positions = [place for found in result for place in found["positions"]]
    if any(place["p"] < SURE for place in positions):
        sys.exit(1)
    if any("speculative" in found["system"] and not found["drafted"] for found in result):
        sys.exit(2)


def prompt(workload: str, row: int, tokens: int) -> Prefix:
    """The first ids of what a bundled test row is about."""
    content = rows(workload, "test", row + 1)[row][WORKLOADS[workload].content]
    ids = models.load_tokenizer(DEMO).encode(content, add_special_tokens=False)
    return tuple(ids[:tokens])


def examined(
    name: str, prompts: Mapping[str, Prefix], chosen: argparse.Namespace
) -> dict[str, Any]:
    """A system's fit at every position of its answers, and how many drafts it verified."""
    backend_name, options = SYSTEMS[name]
    each = -(-chosen.tokens // len(prompts))
    sampling = [Sampling(chosen.temperature, chosen.top_p, n) for n in range(each * len(prompts))]
    asked = [
        Request(f"{w}-{n}", prompts[w], chosen.length, sampling[n * len(prompts) + k], (), True)
        for n in range(each)
        for k, w in enumerate(prompts)
    ]
    backend = open_backend(backend_name, DEMO, Model("demo", dtype="float32"), options)
    done = run_load(backend, asked, Load("closed", concurrency=CONCURRENCY))
    repaired = backend.info.options.get("repaired")
    backend.close()
    fits = by_position(done, prompts, chosen)
    told: Counter[str] = Counter()
    for generation in done:
        told.update({k: int(generation.telemetry.get(k, 0)) for k in ("drafted", "accepted")})
    found = {
        "system": name,
        "repaired": repaired,
        **told,
        "positions": [
            {
                "position": place,
                "tokens": one.tokens,
                "chi_square": round(one.statistic, 1),
                "degrees": one.degrees,
                "p": one.p_value,
            }
            for place, one in enumerate(fits, start=1)
        ],
    }
    print(json.dumps(found), flush=True)
    return found


def by_position(
    done: Sequence[Generation], prompts: Mapping[str, Prefix], chosen: argparse.Namespace
) -> list[ChiSquare]:
    """The fit of the tokens at each position of the answers, from the first."""
    answers: defaultdict[str, list[Prefix]] = defaultdict(list)
    for generation in done:
        if generation.error or len(generation.token_ids) != chosen.length:
            raise RuntimeError(f"{generation.request_id}: {generation.error or 'ended early'}")
        workload = generation.request_id.rpartition("-")[0]
        answers[workload].append(tuple(generation.token_ids))
    model = reference_model()
    fits = [NOTHING] * chosen.length
    for workload, texts in answers.items():
        for place in range(chosen.length):
            after: defaultdict[Prefix, list[int]] = defaultdict(list)
            for text in texts:
                after[text[:place]].append(text[place])
            seen = {k: v for k, v in after.items() if len(v) >= LEAST_SEEN}
            if seen:
                expected = probabilities(model, prompts[workload], list(seen), chosen)
                pairs = zip(seen.values(), expected, strict=True)
                fits[place] += joined(fit(np.bincount(t, minlength=len(p)), p) for t, p in pairs)
    return fits


def reference_model() -> Any:
    """The demo model in transformers, which shares no code with any of the engines."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()


@torch.inference_mode()
def probabilities(
    model: Any, start: Prefix, prefixes: Sequence[Prefix], chosen: argparse.Namespace
) -> list[NDArray[np.float64]]:
    """What the next token is drawn from after the prompt and each prefix (all of one length), each
    (vocabulary,): the softmax of logits over the temperature, of which the most probable tokens
    stay that are needed for `top_p`."""
    found = []
    for prefix in prefixes:
        logits = model(torch.tensor([[*start, *prefix]])).logits[0, -1].double()
        one = torch.softmax(logits / chosen.temperature, 0)
        ordered, order = torch.sort(one, descending=True, stable=True)
        one[order[ordered.cumsum(0) - ordered >= chosen.top_p]] = 0
        found.append((one / one.sum()).numpy())
    return found


if __name__ == "__main__":
    main()
