"""The command ``export``: a run's trials in the format of another tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import UserError
from harness.core.files import write_atomic


def export(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    out: Annotated[Path, typer.Option(help="A folder, a file in it for each trial.")],
) -> None:
    """Write each trial as 'vllm bench serve --save-result --save-detailed' would have: its keys, by
    its definitions."""
    import results
    from results.compare.quality import without_quality
    from results.exports.vllm_bench import as_file
    from results.rows import summaries

    run = without_quality(results.load(directory))
    written, told = 0, {row["key"]: row for row in summaries(run)}
    if out.resolve().is_relative_to(directory.resolve()):
        raise UserError(f"--out {out}: is in the run's own folder; expected another place")
    kept = [f"{stored.record.key}.json" for stored in run.stored]
    there = next((name for name in kept if (out / name).exists()), None)
    if there is not None:
        raise UserError(f"--out {out}: holds {there} already; expected a new folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for members in run.groups():
            for member in members:
                if member.requests is None:
                    continue
                record = run.store.read(member.stored.record.key)
                prompts = run.prompt_lengths(str(record.trial.workload.checksum))
                content = as_file(record, member.requests, prompts, told[record.key])
                text = json.dumps(content, allow_nan=False)
                write_atomic(out / f"{record.key}.json", text.encode())
                written += 1
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from None
    if not written:
        raise UserError(f"{directory}: no trial in it that ended well")
    print(f"exported: {written} trials into {out}, in the format of vllm bench serve")
