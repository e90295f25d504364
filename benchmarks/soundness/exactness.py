"""The text of every lossless method of our engine against plain decoding's, token for token.

    python -m benchmarks.soundness.exactness [--methods eagle3 ...] [--requests 8]
                                             [--dtypes bfloat16 float32] [--model demo]
                                             [--heads auto] [--quick]

On bundled rows of the four workloads: greedy, temperature 0.7, and temperature 1 with top-p 0.9;
each request alone, and eight in flight, so that others come and go meanwhile. Every other answer
ends early, at a token of its own. Speculative methods draft as many as pay, and nine (LookAhead
four, from windows). "adadecode policies" are thresholds 0 to 1 by 1 to 8 drafts, at shallow, deep
and several exits, half of them alone and half with others.
What plain decoding says alone is the reference, in flight with others too. The last line is JSON:
by method the answers compared, those that differ, and the tokens drafted and accepted. Exit code 1
when any differs, or a method drafted nothing, so that nothing was shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backends import open_backend
from backends.checkpoints import exit_heads, models
from backends.own.drafting.methods import LOOKAHEAD, METHODS
from benchmarks.adadecode import PLAIN
from benchmarks.support.turns import WORKLOADS, answers, requests_of
from harness.core.nouns import Generation, Model, Request, Sampling

GAMMAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
MOST_DRAFTS = 8
SAMPLINGS = (Sampling(), Sampling(0.7, seed=1), Sampling(1.0, 0.9, seed=2))
AT_ONCE = 8
NINE = {"drafts": 9}
WINDOWS = {"drafts": 4, "window": 7, "ngram": 5, "guesses": 7}
"""What LookAhead drafts by, which does not pay on the demo model: by itself it is off."""
COUNTS = ("compared", "different", "drafted", "accepted")
Variant = tuple[str, dict[str, Any]]
VARIANTS: dict[str, list[Variant]] = {
    PLAIN: [(PLAIN, {})],
    "adadecode": [("adadecode", {"batching": how}) for how in ("ready", "lockstep")],
    "tetris": [
        ("tetris", {"verify": True, "stages": 3, "layers": [2, 4, 6], "ray": ray})
        for ray in (None, "local")
    ],
    **{
        method: [
            ("speculative", {"method": method, **told})
            for told in ({}, WINDOWS if method == LOOKAHEAD else NINE)
        ]
        for method in METHODS
    },
}
POLICIES = "adadecode policies"
NAMES = [*VARIANTS, POLICIES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--requests", type=int, default=8, help="of each workload")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--heads", default="auto", help="the exit heads of --model")
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.methods, chosen.requests, chosen.dtypes = ["prompt_lookup"], 1, ["bfloat16"]
    totals = {method: dict.fromkeys(COUNTS, 0) for method in NAMES}
    for dtype in chosen.dtypes:
        wanted = [asked(chosen, how, dtype) for how in SAMPLINGS]
        expected = run(chosen, (PLAIN, {}), dtype, wanted, 1)
        for method in chosen.methods:
            for variant, concurrency in runs(method, chosen):
                add(totals[method], expected, run(chosen, variant, dtype, wanted, concurrency))
            print(f"{dtype} {method}: {json.dumps(totals[method])}", flush=True)
    print(json.dumps({method: totals[method] for method in chosen.methods}))
    idle = [
        method for method in chosen.methods if method != PLAIN and not totals[method]["drafted"]
    ]
    if idle or any(total["different"] for total in totals.values()):
        raise SystemExit(1)


def runs(method: str, chosen: argparse.Namespace) -> list[tuple[Variant, int]]:
    """What is run of a method, and how many requests are in flight."""
    if method != POLICIES:
        return [(variant, some) for variant in VARIANTS[method] for some in (1, AT_ONCE)]
    folder = models.resolve(Model(chosen.model))
    where = exit_heads.find_folder(chosen.heads, folder)
    if where is None:
        raise SystemExit(f"{POLICIES}: '{chosen.model}' has no trained exit heads")
    known = exit_heads.open_folder(where, folder).layers
    middle = known[len(known) // 2]
    sets = ([known[0]], known[:6:2], sorted({known[0], middle}), [middle])
    found: list[tuple[Variant, int]] = []
    for number, gamma in enumerate(GAMMAS):
        for drafts in range(1, MOST_DRAFTS + 1):
            told: dict[str, Any] = {"gamma": gamma, "max_drafts": drafts}
            told["exit_layers"] = list(sets[(number + drafts) % len(sets)])
            found.append((("adadecode", told), (1, AT_ONCE)[drafts % 2]))
    return found


def asked(chosen: argparse.Namespace, how: Sampling, dtype: str) -> list[Request]:
    """Requests of all workloads, of which every other one ends in the middle of what plain decoding
    says."""
    found = [one for w in WORKLOADS for one in requests_of(chosen.model, w, chosen.requests, how)]
    said = run(chosen, (PLAIN, {}), dtype, [found], 1)
    return [
        replace(one, stop_ids=(*one.stop_ids, told.token_ids[len(told.token_ids) // 2]))
        if place % 2
        else one
        for place, (one, told) in enumerate(zip(found, said, strict=True))
    ]


def run(
    chosen: argparse.Namespace,
    variant: Variant,
    dtype: str,
    wanted: Sequence[Sequence[Request]],
    concurrency: int,
) -> list[Generation]:
    """Every request's answer, one set of them after another."""
    name, options = variant
    model = Model(chosen.model, dtype=dtype)
    options = options | ({"heads": chosen.heads} if name == "adadecode" else {})
    backend = open_backend(name, models.resolve(model), model, options)
    try:
        return [one for some in wanted for one in answers(backend, some, concurrency)]
    finally:
        backend.close()


def add(total: dict[str, int], expected: Sequence[Generation], found: Sequence[Generation]) -> None:
    """Count answers, and those that differ."""
    for wanted, told in zip(expected, found, strict=True):
        assert wanted.request_id == told.request_id
        total["compared"] += 1
        total["different"] += wanted.token_ids != told.token_ids
        for name in ("drafted", "accepted"):
            total[name] += int(told.telemetry.get(name, 0))


if __name__ == "__main__":
    main()
