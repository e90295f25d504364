"""What vLLM finds in the text, recorded on the demo model, replayed there and on a shape, and by
rates: a case a process, since vLLM opens no second engine where one has compiled its search.

Usage: ``python search_child.py FOLDER CASE``. Writes ``FOLDER/CASE.json``, what each poll handed
out; the case "real" leaves a trace for those that replay it.
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
    folder, case = Path(sys.argv[1]), sys.argv[2]
    trace = folder / "trace"
    options: dict[str, dict[str, Any]] = {
        "real": {**SEARCH, "record": True},
        "replayed": {**SEARCH, "replay": str(trace)},
        "elsewhere": {**SEARCH, "replay": str(trace)},
        "rated": {"method": "ngram", "drafts": 3, "replay": FOUND},
    }
    first, *others = demo_rows()
    asked = [*others, cut_short(first)]
    on_shape = case in ("elsewhere", "rated")
    directory = deeper_shape(folder) if on_shape else DEMO
    backend = opened("vllm-speculative", options[case], directory)
    found = [drive(backend, asked, n) for n in ((4,) if on_shape else (1, 4, len(asked)))]
    if case == "real":
        write_recorded(trace, backend, record(backend, asked, 3))
    backend.close()
    (folder / f"{case}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
