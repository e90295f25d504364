"""What vLLM finds in the text, recorded on the demo model, replayed there and on a shape, and by
rates.

Usage: ``python search_child.py FOLDER RECORD.json``. The record holds, by case, what each poll
handed out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.children.replay_child import cut_short, deeper_shape, demo_rows, opened
from tests.support.exits.demo_answers import DEMO
from tests.support.exits.replays import FOUND, drive, record, write_recorded

SEARCH = {"method": "ngram", "drafts": 8, "lookup_min": 1}
"""A single token that is found again is enough, so that some matches are near the text's end."""


def main() -> None:
    folder, result = (Path(argument) for argument in sys.argv[1:3])
    trace = folder / "trace"
    cases: dict[str, dict[str, Any]] = {
        "real": {**SEARCH, "record": True},
        "replayed": {**SEARCH, "replay": str(trace)},
        "elsewhere": {**SEARCH, "replay": str(trace)},
        "rated": {"method": "ngram", "drafts": 3, "replay": FOUND},
    }
    first, *others = demo_rows()
    asked = [*others, cut_short(first)]
    found: dict[str, Any] = {}
    for case, options in cases.items():
        on_shape = case in ("elsewhere", "rated")
        directory = deeper_shape(folder) if on_shape else DEMO
        backend = opened("vllm-speculative", options, directory)
        rounds = (4,) if on_shape else (1, 4, len(asked))
        found[f"search {case}"] = [drive(backend, asked, n) for n in rounds]
        if case == "real":
            write_recorded(trace, backend, record(backend, asked, 3))
        backend.close()
        # vLLM 0.32 looks through the attributes of all modules when another engine is opened, and
        # fails on those of the compiler that its search has loaded
        sys.modules.pop("llvmlite.binding.ffi", None)
    result.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
