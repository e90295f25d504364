"""What an entry of `workloads` in an experiment file may say beside the usual keys, as JSON schema;
`datasets.row_options` and `own.rows.check` are who decides."""

from __future__ import annotations

from typing import Any

from workloads import LABELLED, OWN, measurable, speed_bench
from workloads.chat import NAME, OPTION, OURS, TEMPLATES
from workloads.own import synthetic
from workloads.own.scorers import SCORERS

_TEXT = {"type": "string", "minLength": 1}
_COMMON: dict[str, dict[str, Any]] = {
    "mix": {
        "description": "Parts of easy and hard rows, in quotes, by the measure below.",
        "type": "string",
        "pattern": r"^(?!0+:0+$)\d{1,9}:\d{1,9}$",
        "examples": ["80:20"],
    },
    "split": {
        "description": "Of the data set; of a folder the files that are named so.",
        **_TEXT,
        "examples": ["train"],
    },
    "revision": {"description": "Of the hub: another commit, branch or tag.", **_TEXT},
}
_SUMMARIES: dict[str, dict[str, Any]] = {
    "article_limit": {
        "description": "Only rows whose article has fewer tokens.",
        "type": "integer",
        "minimum": 1,
        "examples": [1024],
    },
    "max_article_tokens": {
        "description": "Tokens of the article that the prompt keeps.",
        "type": "integer",
        "minimum": 1,
        "examples": [512],
    },
}
_CATEGORY = {
    "enum": [*speed_bench.QUALITATIVE_CATEGORIES, *speed_bench.THROUGHPUT_CATEGORIES],
}
_SPEED_BENCH: dict[str, dict[str, Any]] = {
    "category": {
        "description": "Rows of these categories alone.",
        "anyOf": [_CATEGORY, {"type": "array", "items": _CATEGORY, "minItems": 1}],
        "examples": ["coding", ["math", "rag"]],
    },
    "subset": {
        "description": "Configuration of the hub's data set.",
        "enum": list(speed_bench.SUBSETS),
        "default": speed_bench.QUALITATIVE,
    },
}
_SCORER = {
    "description": "How answers are held against the rows' `answer`; a row's `scorer` goes first.",
    "enum": list(SCORERS),
    "default": "none",
    "examples": ["contains"],
}

_CHAT: dict[str, Any] = {
    "description": (
        "How prompts use the model's chat template: `template: none` writes them as for a model "
        "without one, `template_kwargs` are variables of the template, `system` is a message "
        "before chats that have none of the system's."
    ),
    "type": "object",
    "minProperties": 1,
    "properties": {
        "template": {"enum": list(TEMPLATES), "default": "auto"},
        "template_kwargs": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
            "propertyNames": {"pattern": NAME, "not": {"enum": sorted(OURS)}},
        },
        "system": {"type": "string", "pattern": r"\S"},
    },
    "additionalProperties": False,
    "examples": [{"template_kwargs": {"enable_thinking": False}}],
}
_PROMPT_LIMIT = {
    "description": "Only rows whose prompt, as the model reads it, has up to so many tokens.",
    "type": "integer",
    "minimum": 1,
    "examples": [3840],
}


def catalogue() -> list[dict[str, Any]]:
    """What ``decodebench list workloads`` shows."""
    return [
        {"name": name, "fields": list(spec.fields), "max_new_tokens": spec.max_new_tokens}
        for name, spec in sorted(measurable().items())
    ]


def entries() -> dict[str, dict[str, Any]]:
    """By workload the `properties` of its entry with their schemas, its defaults `max_new_tokens`
    and `source` ("" for none), and the keys `required` beside its name."""
    return {
        name: {
            "max_new_tokens": info.max_new_tokens,
            "source": info.default_source,
            "properties": _properties(name),
            "required": [] if info.default_source else ["source"],
            "difficulty": info.difficulty,
        }
        for name, info in measurable().items()
    }


def _properties(name: str) -> dict[str, Any]:
    if name == synthetic.NAME:
        made = {
            "description": "Prompts are made: leave it out.",
            "enum": ["generated", "bundled"],
            "default": "generated",
        }
        return {"source": made} | {key: _length(key) for key in synthetic.OPTIONS}
    if name in OWN:
        file = {
            "description": "The file, or a folder of such files.",
            **_TEXT,
            "not": {"enum": ["bundled", "hub", "generated"]},
            "examples": ["mine.jsonl" if name == "jsonl" else "sharegpt.json"],
        }
        recorded = {
            "description": "Answers are exactly as long as the reply in the file.",
            "type": "boolean",
            "default": False,
        }
        lengths = {"recorded_lengths": recorded} if name == "sharegpt" else {}
        own = {"source": file, "scorer": _SCORER, **lengths, "prompt_limit": _PROMPT_LIMIT}
        return own | {OPTION: _CHAT}
    more = {"cnn_dailymail": _SUMMARIES, "xsum": _SUMMARIES, "speed_bench": _SPEED_BENCH}
    of_text = {} if name in LABELLED else {"prompt_limit": _PROMPT_LIMIT, OPTION: _CHAT}
    return {**_COMMON, **more.get(name, {}), **of_text}


_LENGTHS = {
    "input_tokens": "Tokens of each prompt beside its prefix: a number, or a distribution.",
    "output_tokens": "Tokens of each answer, whatever the model says: a number, or a distribution.",
    "prefix_tokens": "Tokens that prompts share at their beginning.",
    "prefixes": "How many different shared beginnings there are.",
}


def _length(key: str) -> dict[str, Any]:
    most = synthetic.MOST[key]
    least = 0 if key == "prefix_tokens" else 1
    number = {"type": "integer", "minimum": least, "maximum": most}
    told = {"description": _LENGTHS[key], "default": synthetic.DEFAULTS[key]}
    if not key.endswith("put_tokens"):
        return {**told, **number}
    whole = {"type": "integer", "minimum": 1, "maximum": most}
    part = {"type": "number", "minimum": 1, "maximum": most}
    spread = {"type": "number", "minimum": 0, "maximum": most}
    shapes = [
        {
            "type": "object",
            "properties": {
                "distribution": {"const": shape},
                **{k: spread if k in ("std", "sigma") else part for k in needed},
                "least": whole,
                "most": whole,
            },
            "required": ["distribution", *needed],
            "additionalProperties": False,
        }
        for shape, needed in synthetic.SHAPES.items()
    ]
    example = {"distribution": "lognormal", "median": 300, "sigma": 0.8, "most": 4096}
    return {**told, "anyOf": [number, *shapes], "examples": [256, example]}
