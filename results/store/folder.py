"""The folder of one run: what was asked, and one record per finished trial.

    DIR/experiment.yaml           the resolved experiment
    DIR/trials/KEY.json           the record without its generations
    DIR/trials/KEY.parquet        the generations (see `results.store.columns`)
    DIR/prompts/CHECKSUM.parquet  prompts and answers, once per workload
    DIR/code/DIGEST.json          what pins a trial's code, under the digest that its record names
    DIR/cache/                    derived numbers; may be deleted at any time

The JSON file is the commit point of a trial: it is renamed into place last and names the size and
the BLAKE2b digest of its Parquet file. A Parquet file without its JSON is not a result.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.errors import UserError
from harness.core.nouns import TrialRecord
from results.store import records
from results.store.records import BrokenRecordError, MissingRecordError, Payload, StoredTrial

if TYPE_CHECKING:
    from results.store.columns import TrialFile

KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(slots=True)
class Store:
    """Reads and writes the folder `path`. Nothing is created before the first write.

    Two processes may read while one writes. Every reading method raises `UserError` in one line
    when a file is missing, broken, foreign or of another schema version.
    """

    path: Path
    retry_failures: bool = False
    """Whether a trial of which requests failed is to be run again. Its record stays until another
    is stored that ended well."""
    _cleaned: set[Path] = field(default_factory=set, repr=False)

    @property
    def trials_folder(self) -> Path:
        """Where the records are."""
        return self.path / "trials"

    @property
    def cache_folder(self) -> Path:
        """Where derived numbers may be kept."""
        return self.path / "cache"

    def has(self, key: str) -> bool:
        """Whether a whole record with status "ok" is stored; anything else is to be run again.

        Raises `UserError` for a record of another schema version: running again would replace it.
        """
        stored = self._whole(key)
        return stored is not None and not (self.retry_failures and stored.has_failed_requests)

    def _whole(self, key: str) -> StoredTrial | None:
        """The record where its trial ended well and its generations are there."""
        try:
            stored = self.read_stored(key)
            if stored.record.status != "ok":
                return None
            self._generations(key, stored.payload)
        except BrokenRecordError:
            return None
        return stored

    def keys(self) -> list[str]:
        """Keys of all stored records, whatever their status, sorted; none when a run just began.

        Raises `UserError` when the folder is missing or is not one that a run has written to.
        """
        if not self.path.is_dir():
            raise UserError(f"{self.path}: no such folder; expected one that 'run' has written")
        if not self.trials_folder.is_dir():
            if (self.path / "experiment.yaml").is_file() and not self.trials_folder.exists():
                return []
            raise UserError(
                f"{self.path}: not a results folder (no 'trials' in it); "
                "expected one that 'run' has written"
            )
        names = (p.name for p in self.trials_folder.iterdir())
        keys = sorted(n[: -len(".json")] for n in names if n.endswith(".json") and n[0] != ".")
        for key in keys:
            if not KEY.fullmatch(key):
                strange = self.trials_folder / f"{key}.json"
                raise UserError(f"{strange}: not a trial record; move it elsewhere")
        return keys

    def remove(self, key: str) -> None:
        """Delete a record, so that its trial is run again. Raises `OSError`."""
        self._file(key, ".json").unlink(missing_ok=True)
        self._file(key, ".parquet").unlink(missing_ok=True)

    def write(self, record: TrialRecord) -> None:
        """Store a record so that it is on the disk, whole, when this returns.

        Raises `OSError` (a full disk) and leaves no temporary file and no half record behind.
        """
        from results.store import columns

        if self.retry_failures and record.status != "ok" and self._whole(record.key) is not None:
            return
        table = columns.to_table(record)
        data = columns.to_parquet(table)
        payload = Payload(len(data), records.digest(data), table.num_rows)
        parquet, summary = self._file(record.key, ".parquet"), self._file(record.key, ".json")
        self._prepare(self.trials_folder)
        temporary: list[Path] = []
        try:
            temporary.append(files.write_temporary(parquet, data))
            temporary.append(files.write_temporary(summary, records.to_text(record, payload)))
            replaces = summary.exists()
            try:
                # An older record must not be left pointing at the new generations.
                summary.unlink(missing_ok=True)
                self._put(temporary[0], parquet)
                self._put(temporary[1], summary)
            except BaseException:
                # The older one is gone, so that an interrupt would cost both.
                if replaces and not summary.exists():
                    with suppress(OSError):
                        self._put(temporary[0], parquet)
                        self._put(temporary[1], summary)
                raise
        finally:
            for path in temporary:
                path.unlink(missing_ok=True)

    def _put(self, temporary: Path, target: Path) -> None:
        if temporary.exists():
            temporary.replace(target)
        files.sync_folder(self.trials_folder)

    def read(self, key: str) -> TrialRecord:
        """The whole record, generations, texts and scores included."""
        from results.store import columns

        stored = self.read_stored(key)
        file = self.open_file(key, stored.payload)
        generations, texts, scores = columns.from_table(file.read(file.names))
        return dataclasses.replace(
            stored.record, generations=generations, texts=texts, scores=scores
        )

    def read_stored(self, key: str) -> StoredTrial:
        """The record without generations: reads the JSON file only."""
        path = self._file(key, ".json")
        try:
            return records.from_text(path, files.read_plain(path))
        except FileNotFoundError:
            raise MissingRecordError(f"{path}: no such trial record") from None

    def payload_state(self, key: str) -> tuple[int, int]:
        """Size in bytes and time of change in ns of a trial's Parquet file; (0, 0) without one."""
        try:
            state = self._file(key, ".parquet").stat()
        except FileNotFoundError:
            return (0, 0)
        return (state.st_size, state.st_mtime_ns)

    def open_file(self, key: str, payload: Payload) -> TrialFile:
        """The generations' file, read whole and checked against the digest that the record holds;
        its columns are decoded when asked for."""
        from results.store import columns

        return columns.TrialFile(self._file(key, ".parquet"), self._generations(key, payload))

    def _generations(self, key: str, payload: Payload) -> bytes:
        path = self._file(key, ".parquet")
        try:
            data = files.read_plain(path)
        except FileNotFoundError:
            what = f"{path}: missing, though {key}.json is there"
            remedy = records.remedy(path, f"{key}.json")
            raise BrokenRecordError(f"{what}; {remedy}") from None
        if len(data) != payload.bytes or records.digest(data) != payload.blake2b:
            named = f"{key}.json names"
            what = f"{len(data)} bytes that are not the {payload.bytes} bytes {named}"
            if len(data) == payload.bytes:
                what = f"not the bytes that {named} (its digest is another one)"
            raise BrokenRecordError(f"{path}: {what}; {records.remedy(path, 'both')}")
        return data

    def write_experiment(self, yaml_text: str) -> None:
        """Store the resolved experiment. Raises `OSError`."""
        self._prepare(self.path)
        files.write_atomic(self.path / "experiment.yaml", yaml_text.encode())

    def read_experiment(self) -> dict[str, Any]:
        """The resolved experiment; empty when none was stored. Raises `UserError` for what is no
        resolved experiment, one that is to be run too."""
        from results.store.experiment import read_resolved

        return read_resolved(self.path / "experiment.yaml")

    def write_prompts(self, workload_checksum: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store prompts and answers (request_id, prompt_text, prompt_tokens, answer), one row per
        request, under the checksum that pins their content. Raises `OSError`."""
        import pyarrow as pa

        from results.store import columns

        path = self._prompts_file(workload_checksum)
        self._prepare(path.parent)
        table = pa.Table.from_pylist([dict(row) for row in rows])
        files.write_atomic(path, columns.to_parquet(table))

    def has_prompts(self, workload_checksum: str) -> bool:
        """Whether `write_prompts` has been called for this workload."""
        return self._prompts_file(workload_checksum).is_file()

    def read_prompts(self, workload_checksum: str) -> list[dict[str, Any]]:
        """What `write_prompts` stored; empty when nothing was."""
        return self._prompt_columns(workload_checksum)

    def _prompt_columns(
        self, workload_checksum: str, names: list[str] | None = None
    ) -> list[dict[str, Any]]:
        """Those of the columns `names` that there are; None: all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._prompts_file(workload_checksum)
        try:
            # Arrow takes no path that is not UTF-8
            with files.open_plain(path) as plain, pq.ParquetFile(plain) as file:
                rows: list[dict[str, Any]] = file.read(names).to_pylist()
        except FileNotFoundError:
            return []
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: broken Parquet ({reason}); {records.remedy(path)}") from None
        return rows

    def read_prompt_lengths(self, workload_checksum: str) -> dict[str, int]:
        """Tokens of each prompt by its request_id, as far as they are known."""
        rows = self._prompt_columns(workload_checksum, ["request_id", "prompt_tokens"])
        lengths = ((str(row["request_id"]), row.get("prompt_tokens")) for row in rows)
        return {name: int(count) for name, count in lengths if count is not None}

    def write_code(self, digest: str, parts: Mapping[str, str]) -> None:
        """Store what a trial's key pins beside trial and machine: a digest for each source and
        each file of an option. Raises `OSError`."""
        if self.read_code(digest) is None:
            self._prepare(self.path / "code")
            files.write_atomic(self._code_file(digest), json.dumps(parts, indent=0).encode())

    def read_code(self, digest: str) -> dict[str, str] | None:
        """What `write_code` stored; None when nothing was, or when it is damaged."""
        try:
            parts = json.loads(files.read_plain(self._code_file(digest)))
        except (FileNotFoundError, UserError, ValueError):
            return None
        return parts if isinstance(parts, dict) else None

    def keep_code(self, digests: Collection[str]) -> None:
        """Delete what `write_code` stored under other digests. Raises `OSError`."""
        found = (self.path / "code").glob("*.json")
        for path in [path for path in found if path.stem not in digests]:
            path.unlink(missing_ok=True)

    def _prepare(self, folder: Path) -> None:
        if folder not in self._cleaned:
            folder.mkdir(parents=True, exist_ok=True)
            files.remove_stale(folder)
            self._cleaned.add(folder)

    def _file(self, key: str, suffix: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"trial key {key!r}: expected letters, digits, '_' and '-' only")
        return self.trials_folder / (key + suffix)

    def _prompts_file(self, checksum: str) -> Path:
        return self.path / "prompts" / (re.sub(r"[^0-9A-Za-z_-]", "-", checksum) + ".parquet")

    def _code_file(self, digest: str) -> Path:
        return self.path / "code" / (re.sub(r"[^0-9A-Za-z_-]", "-", digest) + ".json")
