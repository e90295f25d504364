"""docs/experiment.md: every key of an experiment file, with default and example."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from harness.experiment.described.keys import LABEL, LIMIT_TEXTS, REQUIRED, Schema
from harness.experiment.described.loads import LOADS

HEAD = """# An experiment file

One YAML file says what is compared, on what, under which load. `decodebench init` writes a
commented one that runs as it is, `decodebench quick` needs none, `decodebench schema` prints the
same as JSON schema, and `decodebench run FILE --dry-run` says what a file would do. For
completion in an editor:

```sh
decodebench schema > experiment.schema.json
# first line of the experiment: yaml-language-server: $schema=experiment.schema.json
```

A trial is one cell of backend x options x model x workload x load x repeat. Lists of options,
loads and models expand as a grid. Unknown keys are errors. This page is written by `decodebench
schema --markdown`.
"""
PLACES = {
    "model": "## `model`\n\nA name (text), or a mapping of these keys:",
    "slo": "## `slo`",
    "sampling": "## `sampling`",
    "limits": "## `limits`",
    "published": "## `published`",
}
WORKLOADS = """## `workloads`

A name, or a mapping with `name` and these keys. Of a data set's rows those with nothing in a field
that is needed, and other ones under an id that was met before, are left out; `run` says how many
were, and the first one's place. Of a folder the files of the split are read, which their names or
their folders' tell (`test-00000-of-00001.parquet`, `test/0000.parquet`). A subfolder called as the
data set's configuration is (`main`, `3.0.0`) goes first, as `hf download` leaves it; a folder with
the split in several others is refused.
"""
OWN_PROMPTS = """### Own prompts

`jsonl`: a row of the file (JSON lines, JSON, CSV, TSV or Parquet) has `prompt`, or `messages` as
the chat API has them, and may have `id`, `answer`, `scorer`, `output_tokens` and `max_new_tokens`.
Where the assistant's message stands last, it is the answer. The prompt goes through the model's
chat template where it has one; without one it is read as it stands. `output_tokens` is how many
tokens the answer has, exactly and whatever the model says; `max_new_tokens` how many at most; the
entry's `max_new_tokens` cuts both. A row that cannot be asked is left out: an empty prompt, a chat
that does not end with the user's message (and an answer), or one with pictures or tools. Rows
without an `id` that are equal are asked once. `run` says how many rows that concerns, and which
keys of rows nobody reads.

```json
{"id": "q1", "prompt": "What is the capital of France?", "answer": "Paris", "scorer": "contains"}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]}
{"prompt": "Count to ten.", "output_tokens": 40}
```

| scorer | score | right when |
|---|---|---|
| `exact` | `equals_answer` | the answer is the row's, white space at both ends left out |
| `contains` | `contains_answer` | the row's stands in it, whatever the case and white space |
| `regex` | `matches_pattern` | the row's, a Python regular expression, is found (1 s at most) |
| `rouge_l` | `rouge_l_to_label` | ROUGE-L F1 against the row's |
| `none` | | not scored |

`sharegpt`: the usual export, `[{"id", "conversations": [{"from": "human", "value"}, {"from":
"gpt", "value"}]}]`. Asked is the first turn; the reply is the answer. What does not begin with a
question and a reply is left out, and so is another conversation under an id that was met before;
`run` says how many were, and the first one's place. Equal ones are asked once. With
`recorded_lengths` it also says how many answers `max_new_tokens` cuts. Of large files read more
with `limits: {data_mib: 1000}`.

`synthetic`: token ids drawn at random, exactly as many as asked for, without a chat template. A
server that takes text counts the tokens of that text anew. A length is a number or a
distribution: `{distribution: uniform, least, most}`, `{distribution: normal, mean, std}`,
`{distribution: lognormal, median, sigma}`, the last two within `least` and `most` where given.
Such prompts say nothing of how often drafts stand or how early a model could exit.

A source that is a folder means every file in it. An empty cell of a CSV file is nothing. Relative
paths, those of traces too, count from the working directory, not from the experiment file.

A row's id names its request (`jsonl-q1`), so that ids pair the requests of several runs; no row
may be called as the repeats of another are (`q1#2`). Which rows are drawn, and in which order,
depends on the seed and on the ids.
"""
BACKENDS = """## `backends`

A name, or a mapping with `name`, a label, and the options of one of the tables below.
"""


def page(schema: Mapping[str, Any], measures: Mapping[str, str]) -> str:
    """The page of a schema that `experiment_schema` made. `measures`: by workload what its option
    `mix` calls difficult."""
    top = schema["properties"]
    parts = [HEAD, _table(top, required=REQUIRED)]
    parts += [f"{title}\n\n{_table(_keys_of(top[key]))}" for key, title in PLACES.items()]
    parts += ["## `load`\n\nEach entry has a `kind`.\n"]
    for kind, (text, keys) in LOADS.items():
        parts.append(f"### `kind: {kind}`\n\n{text}\n\n{_table(keys)}")
    parts += [WORKLOADS]
    parts += list(_entries(top["workloads"], measures))
    parts += [OWN_PROMPTS]
    parts += [BACKENDS, _table({"label": LABEL}) + "\n"]
    parts += [_backend(entry) for entry in _mappings(top["backends"])]
    return "\n".join(part.rstrip() + "\n" for part in parts).rstrip()


def _mappings(key: Mapping[str, Any]) -> list[Schema]:
    return [entry for entry in key["items"]["anyOf"] if "properties" in entry]


def _keys_of(key: Mapping[str, Any]) -> dict[str, Schema]:
    """The keys of all mappings that may stand there."""
    found: dict[str, Schema] = {}
    for one in [key, *key.get("anyOf", ())]:
        for name, inner in one.get("properties", {}).items():
            found.setdefault(name, inner)
    return found


def _entries(key: Mapping[str, Any], measures: Mapping[str, str]) -> Iterator[str]:
    for entry in _mappings(key):
        name = entry["title"]
        keys = {k: s for k, s in entry["properties"].items() if k != "name"}
        hard = f"\n\nDifficulty, for `mix`: {measures[name]}." if "mix" in keys else ""
        yield f"### `{name}`\n\n{_table(keys, required=entry['required'])}{hard}"


def _backend(entry: Schema) -> str:
    keys = {k: s for k, s in entry["properties"].items() if k not in ("name", "label")}
    return f"### `{entry['title']}`\n\n{_table(keys) if keys else 'No options.'}"


def _table(keys: Mapping[str, Schema], required: tuple[str, ...] | list[str] = ()) -> str:
    rows = ["| key | default | what it is | example |", "|---|---|---|---|"]
    for name, key in keys.items():
        told = key.get("description", LIMIT_TEXTS.get(name, ""))
        default = (
            "required" if name in required else _shown(key["default"]) if "default" in key else ""
        )
        examples = ", ".join(_shown(example) for example in key.get("examples", ()))
        rows.append(f"| `{name}` | {default} | {_cell(told + _choices(key))} | {_cell(examples)} |")
    return "\n".join(rows)


def _choices(key: Mapping[str, Any]) -> str:
    for one in [key, *key.get("anyOf", ())]:
        if "enum" in one and "type" not in one and len(one["enum"]) > 1:
            return " (" + ", ".join(f"`{choice}`" for choice in one["enum"]) + ")"
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
