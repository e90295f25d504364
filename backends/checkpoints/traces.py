"""What the option `replay` of a backend names: bundled traces, files, and rates."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.files import user_path
from harness.core.nouns import Request, canonical_json
from results.traces.file import read_trace
from results.traces.rates import Rates, TraceSource, parse_rates
from results.traces.recorded import DecisionTrace

BUNDLED = models.DEMO / "traces"
DEMO = "demo"
METHODS = dict.fromkeys(("vllm-early-exit", "own-early-exit", "tetris"), "vllm-early-exit")
"""By backend, the bundled trace that it replays: else that of adadecode, whose answers are those of
plain decoding, so that what is replayed from it has equal lengths."""
UNDECIDED = "random weights decide nothing; give 'replay: demo', a trace or rates"
"""Why a method that decides is refused on a shape."""
REPLAY = Option(
    str,
    None,
    "decisions to replay in the place of the model's own: demo (recorded from the demo model), a "
    "file of 'decodebench trace', or rates; default: none",
    mapping=True,
)
RECORD = Option(
    bool, False, "hand out what is decided, for 'decodebench trace' (costs a little time)"
)


def find_trace(
    replay: str | Mapping[str, Any] | None, backend: str, method: str | None = None
) -> Path | None:
    """The file that the option names; None for rates and where nothing is replayed. `method`: the
    backend whose decisions they are, where it is another one. Raises `UserError`."""
    if not isinstance(replay, str):
        return None
    if replay == DEMO:
        return BUNDLED / f"{METHODS.get(method or backend, 'adadecode')}.parquet"
    path = user_path(replay, f"backend '{backend}': option 'replay'")
    if not path.is_file():
        raise UserError(
            f"backend '{backend}': option 'replay': no trace '{replay}'; give {DEMO}, a file of "
            "'decodebench trace', or rates ('rates:' at the top of the experiment file names some)"
        )
    return path


def open_source(
    replay: str | Mapping[str, Any], backend: str, method: str | None = None
) -> TraceSource:
    """What the option names, read; `method` as in `find_trace`. Raises `UserError`."""
    path = find_trace(replay, backend, method)
    if path is None:
        assert isinstance(replay, Mapping)
        return parse_rates(replay, f"backend '{backend}': option 'replay'")
    return read(path)


def read(path: Path) -> DecisionTrace:
    """A trace's file, read once as long as it stays the same. Raises `UserError`."""
    return _read(path, path.stat().st_mtime_ns)


def open_method(
    replay: str | Mapping[str, Any], backend: str, method: str | None = None
) -> TraceSource:
    """As `open_source`, for a backend that replays exits. Raises `UserError` for a trace of another
    method, and for one that tells lengths alone."""
    method = method or backend
    found, where = open_source(replay, backend, method), f"backend '{backend}': option 'replay'"
    if found.method not in (None, method, METHODS.get(method)):
        assert isinstance(replay, str)
        raise UserError(
            f"{where}: {find_trace(replay, backend)} is a trace of '{found.method}', not of "
            f"'{method}'"
        )
    if isinstance(found, Rates) and found.acceptance is None:
        raise UserError(
            f"{where}.acceptance: speaks of drafts alone; expected a number, how often a token "
            "that leaves early is the last layer's"
        )
    if isinstance(found, Rates) and found.found != 1:
        raise UserError(f"{where}.found: belongs to a search of the text, and exits are none")
    if found.method is not None and not found.fractions:
        raise UserError(
            f"{where}: {replay} tells lengths alone; run with 'record: true' for what was decided"
        )
    return found


def supposed(replay: str | Mapping[str, Any] | None, backend: str) -> list[str]:
    """That rates without an acceptance suppose that every early prediction stands: a line, for a
    backend that verifies them."""
    if not isinstance(replay, Mapping) or replay.get("acceptance") is not None:
        return []
    return [
        f"backend '{backend}': option 'replay': the rates {canonical_json(replay)} have no "
        "'acceptance', and 1 is taken: every early prediction stands"
    ]


def files(options: Mapping[str, Any], backend: str, method: str | None = None) -> list[Path]:
    """The file that a backend replays, for its trials' keys. Raises `UserError`."""
    found = find_trace(options["replay"], backend, method)
    return [] if found is None else [found]


@functools.lru_cache(maxsize=8)
def _read(path: Path, _stamp: int) -> DecisionTrace:
    return read_trace(path)


def folded(request: Request, vocabulary: int) -> tuple[int, ...]:
    """The prompt in a vocabulary that may be smaller than the one it was written in."""
    return tuple(token % vocabulary for token in request.prompt_ids)
