"""The keys of an experiment file as JSON schema, with what they mean, their defaults and examples.

The names and bounds are those of the reader (`harness.experiment.config`); a test offers both the
same values, key by key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from harness.core.nouns import QUALITY_MARGIN
from harness.experiment.choices import MAX_LABEL
from harness.experiment.config import LEAST_TEMPERATURE, MAX_LIMIT_S, MAX_NAME
from harness.experiment.limits import HIGHEST, Limits
from harness.experiment.models import DTYPES
from harness.experiment.section import MAX_COUNT, MAX_SEED

Schema = dict[str, Any]

TOLD = ("description", "default", "examples")
TEXT: Schema = {"type": "string", "minLength": 1}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"], "minLength": 1, "default": None}
COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
SEED: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEED, "default": 0}
BOUND: Schema = {"type": ["number", "null"], "exclusiveMinimum": 0, "default": None}


def mapping(properties: Mapping[str, Schema], *required: str, **more: Any) -> Schema:
    """A mapping with these keys and no others."""
    fields = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**fields, **({"required": list(required)} if required else {}), **more}


def one_or_more(value: Schema) -> Schema:
    """A value, or a list of them: an axis of the grid."""
    told = {key: part for key, part in value.items() if key in TOLD}
    bare = {key: part for key, part in value.items() if key not in TOLD}
    return {**told, "anyOf": [bare, {"type": "array", "items": bare, "minItems": 1}]}


def said(schema: Schema, text: str, *examples: Any, **more: Any) -> Schema:
    """A schema with what it means, and examples."""
    return {"description": text, **schema, **more, "examples": list(examples)}


CHECKSUM = said(OPTIONAL_TEXT, "What its content has to be; a stored experiment has it.")
_MODEL_NAME = said(TEXT, "A bundled name, a hub id or a folder.", "demo", "meta-llama/Llama-3.1-8B")
_PLAIN_MODEL = mapping(
    {
        "name": _MODEL_NAME,
        "revision": said(OPTIONAL_TEXT, "Of the hub: a commit, branch or tag."),
        "checksum": CHECKSUM,
    },
    "name",
)
_SHAPE = mapping(
    {
        "shape": said(
            one_or_more(TEXT),
            "A published architecture with random weights: a name of `decodebench list models`, or "
            "the path of a `config.json`. It measures cost; decisions are replayed.",
            "0.5b",
        ),
        "layers": said(
            one_or_more({"type": ["integer", "null"], "minimum": 1, "maximum": MAX_COUNT}),
            "Its first layers only.",
            8,
            default=None,
        ),
        "checksum": CHECKSUM,
    },
    "shape",
)
_MODEL: Schema = {"anyOf": [TEXT, _PLAIN_MODEL, _SHAPE]}

LABEL = said(
    {**OPTIONAL_TEXT, "maxLength": MAX_LABEL},
    f"What tables and pages call it, in at most {MAX_LABEL} characters. `{{OPTION}}` stands for an "
    "option's value, so that each cell of a grid has a name of its own.",
    "our server",
    "exits at {threshold}",
)
WORKLOAD_KEYS: dict[str, Schema] = {
    "max_new_tokens": said(COUNT, "How long an answer may be.", 256),
    "source": said(
        {"type": "string"},
        "`bundled` rows, `hub` for the data set itself, or a file or folder of the same fields.",
        "hub",
        "data/gsm8k/test.jsonl",
    ),
    "rows": said(
        {**COUNT, "type": ["integer", "null"]},
        "How many distinct rows; by default as many as there are requests.",
        200,
        default=None,
    ),
    "checksum": CHECKSUM,
}

LIMIT_TEXTS: dict[str, str] = {
    "trials": "Cells of model x backend x options x workload x load x repeat.",
    "engines": "Models x backends and their options.",
    "prompts": "Requests x workloads; with `duration_s` the requests of one load.",
    "bundled_rows": "Rows that the bundled generators make, at some ms each.",
    "data_rows": "Rows read from data files and traces, all together.",
    "data_mib": "MiB read from data files and traces, all together, unpacked.",
    "cache_gib": "GiB of generated shapes in the user's cache.",
}
_SLO = {
    "ttft_ms": said(BOUND, "To the first token.", 200),
    "tpot_ms": said(BOUND, "For each further token.", 50),
    "e2e_ms": said(BOUND, "To the last token.", 5000),
}
_SAMPLING = {
    "temperature": said(
        {"type": "number", "anyOf": [{"const": 0}, {"minimum": LEAST_TEMPERATURE}]},
        f"0 is greedy; else at least {LEAST_TEMPERATURE}, below which vLLM takes another.",
        0.7,
        default=0.0,
    ),
    "top_p": said(
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "Share of the probability that is drawn from.",
        0.9,
        default=1.0,
    ),
    "seed": said(SEED, "Of the draws: the first request's; each has the next.", 1),
}
_PUBLISHED = {
    "source": said(TEXT, "Paper and table.", "AdaDecode, Table 3"),
    "metric": said(TEXT, "A name of docs/metrics.md.", "speedup"),
    "settings": said(
        {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
        "What each number of a row was measured on.",
        ["Llama 3.1 8B"],
    ),
    "note": said(TEXT, "How it was measured there.", "one A100, batch 1"),
    "rows": said(
        {
            "type": "array",
            "minItems": 1,
            "items": mapping(
                {
                    "backend": TEXT,
                    "options": {"type": "object"},
                    "values": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "array",
                            "items": {"type": ["number", "null"]},
                        },
                    },
                },
                "backend",
            ),
        },
        "For each backend of the table its numbers by workload, one for each setting.",
        [{"backend": "adadecode", "values": {"gsm8k": [1.63]}}],
    ),
}

TOP: dict[str, Schema] = {
    "name": said(
        {**TEXT, "maxLength": MAX_NAME, "pattern": r"^(?!\.{1,2}$)[^/\x00-\x1f]+$"},
        "Names the run, and its folder `runs/NAME`.",
        "mine",
    ),
    "model": said(
        {"anyOf": [*_MODEL["anyOf"], {"type": "array", "items": _MODEL, "minItems": 1}]},
        "What is decoded with: one model, or a list.",
        "demo",
        {"shape": "0.5b", "layers": 8},
    ),
    "dtype": said(
        {"enum": list(DTYPES)},
        "Of weights and arithmetic, for all backends alike; `auto` is bfloat16 where the hardware "
        "has it, else float32.",
        "bfloat16",
        default="auto",
    ),
    "reference": said(
        {}, "The backend that others are compared with; the first by default.", "vllm"
    ),
    "backends": said({}, "What is compared.", ["vllm", {"name": "adadecode", "gamma": [0.6, 0.9]}]),
    "workloads": said({}, "What is asked.", ["gsm8k", {"name": "jsonl", "source": "mine.jsonl"}]),
    "load": said({}, "When requests arrive.", [{"kind": "closed", "concurrency": [1, 8]}]),
    "requests": said(COUNT, "Of each trial; 100 for a p99, 20 for a p95.", 100, default=64),
    "duration_s": said(
        {**BOUND, "exclusiveMaximum": MAX_LIMIT_S},
        "Each load lasts so many seconds: requests that arrive by then are answered, and the "
        "`requests` prompts are asked over and over.",
        60,
    ),
    "quality_requests": said(
        {**COUNT, "type": ["integer", "null"]},
        "Prompts of each workload whose answers are judged: those of the loads, and as many more, "
        "asked once behind them and never timed (docs/metrics.md).",
        300,
        default=None,
    ),
    "max_new_tokens": said(
        {**COUNT, "type": ["integer", "null"]},
        "How long an answer may be; by default the workload's own length.",
        256,
        default=None,
    ),
    "slo": said(mapping(_SLO), "The objective that goodput counts by, in ms.", {"ttft_ms": 200}),
    "sampling": said(mapping(_SAMPLING), "How tokens are chosen.", {"temperature": 0.7}),
    "ignore_eos": said(
        {"type": "boolean"}, "Answers go on to `max_new_tokens`.", True, default=False
    ),
    "repeats": said(
        COUNT,
        "Of each trial; 4, so that three are left for intervals that hold when one is disturbed.",
        4,
        default=1,
    ),
    "reload": said(
        {"type": "boolean"},
        "Each repeat loads its engines anew, so that intervals hold what one loading decides: "
        "where memory lies, what was compiled or timed. It loads once for each repeat or more.",
        True,
        default=False,
    ),
    "seed": said(SEED, "Decides rows, arrivals and made-up prompts.", 1),
    "quality_margin": said(
        {"type": "number", "minimum": 0, "maximum": 1},
        "By how much of a task's score answers may be worse and still count as good.",
        0.01,
        default=QUALITY_MARGIN,
    ),
    "time_limit_s": said(
        {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LIMIT_S},
        "Of each phase of a trial; above 1800 s of an engine's start too.",
        600,
        default=3600.0,
    ),
    "rates": said(
        {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "propertyNames": {"not": {"const": "demo"}},
        },
        "Made-up decisions by name, for the option `replay` (exits: docs/models.md; acceptance of "
        "drafts: docs/replays.md).",
        {"chatty": {"exits": {"0.5": 0.4}}},
    ),
    "limits": said(
        mapping(
            {
                field.name: {
                    "description": LIMIT_TEXTS[field.name],
                    "type": "integer",
                    "minimum": 1,
                    "maximum": HIGHEST,
                    "default": field.default,
                }
                for field in dataclasses.fields(Limits)
            }
        ),
        "How much may be asked for before it is taken for a slip of the finger.",
        {"prompts": 100_000},
    ),
    "published": said(
        {
            "anyOf": [
                {"type": "null"},
                mapping(_PUBLISHED, "source", "metric", "settings", "note", "rows"),
            ]
        },
        "A paper's table, which the page sets beside what was measured.",
        {
            "source": "AdaDecode, Table 3",
            "metric": "speedup",
            "settings": ["Llama 3.1 8B"],
            "note": "one A100, batch 1",
            "rows": [{"backend": "adadecode", "values": {"gsm8k": [1.63]}}],
        },
    ),
}
REQUIRED = ("name", "model", "backends", "workloads", "load")
