"""The command ``export``: a run's trials in the format of another tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from harness.core.errors import UserError
from harness.core.files import move, write_atomic


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
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _whole(out) as unfinished:
            for members in run.groups():
                for member in members:
                    if member.requests is None:
                        continue
                    record = run.store.read(member.stored.record.key)
                    prompts = run.prompt_lengths(str(record.trial.workload.checksum))
                    content = as_file(record, member.requests, prompts, told[record.key])
                    text = json.dumps(content, allow_nan=False)
                    write_atomic(unfinished / f"{record.key}.json", text.encode())
                    written += 1
    except BaseException as error:
        if made:
            with suppress(OSError):  # it was not made, or another has put something in it
                out.rmdir()
        if isinstance(error, OSError):
            raise UserError(f"{out}: cannot be written: {error.strerror or error}") from None
        raise
    if not written:
        raise UserError(f"{directory}: no trial in it that ended well")
    print(f"exported: {written} trials into {out}, in the format of vllm bench serve")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A place whose files go into the folder `out` on leaving, none where anything is raised."""
    moved: list[Path] = []
    with TemporaryDirectory(dir=out, prefix=".unfinished-") as unfinished:
        try:
            yield Path(unfinished)
            for path in sorted(Path(unfinished).iterdir()):
                moved.append(out / path.name)
                move(path, moved[-1])
        except BaseException:
            for path in moved:
                path.unlink(missing_ok=True)
            raise
