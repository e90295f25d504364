"""What a backend may hand out: what breaks the contract makes its numbers mean nothing, and what
it tells of each token is kept."""

from __future__ import annotations

from harness.core.nouns import Commit, Generation, Request


class TrialProtocolError(Exception):
    """The backend broke the contract of `harness.core.backend`; its numbers mean nothing."""


def check_label(commit: Commit, wanted: bool) -> None:
    """Raise `TrialProtocolError` for a label that nobody asked for, and for an answer to a request
    for one (`wanted`) that is not a label alone."""
    if not wanted and commit.label is not None:
        raise TrialProtocolError(
            f"request '{commit.request_id}' asks for tokens and was given a label"
        )
    if not wanted or commit.finished == "error":
        return
    if commit.label is None or commit.token_ids or commit.finished != "stop":
        raise TrialProtocolError(
            f"request '{commit.request_id}' asks for a label: its one commit has a label, no "
            f"tokens and ends with stop; this one has {commit.label}, {len(commit.token_ids)} "
            f"tokens and ends with {commit.finished}"
        )


def note_layers(generation: Generation, commit: Commit) -> None:
    """Keep how many layers each token of a commit ran, before its tokens are added. Only backends
    that leave early are asked (they count `layers_skipped`), and only where one count is of each
    token; of several tokens told together it is known where all are as deep."""
    told, count = commit.telemetry, len(commit.token_ids)
    if not count or "layers_skipped" not in told or told.get("steps") != count:
        return
    layers, rest = divmod(int(told["layers_run"]), count)
    untold = len(generation.token_ids) - len(generation.token_layers)
    generation.token_layers += [0] * untold + [0 if rest else layers] * count


def check_output(request: Request, generation: Generation) -> None:
    """Outside the timed window: nothing may follow the first stop token. Raises
    `TrialProtocolError`."""
    if request.ignore_eos or not request.stop_ids:
        return
    stops = set(request.stop_ids)
    for position, token in enumerate(generation.token_ids[:-1]):
        if token in stops:
            more = len(generation.token_ids) - position - 1
            raise TrialProtocolError(
                f"request '{request.id}': {more} tokens follow the stop token at {position}"
            )
