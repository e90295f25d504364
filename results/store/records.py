"""A trial record as the JSON text of its file, which also names the Parquet file beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import IMPORTED, SCHEMA_VERSION, TrialRecord, canonical_json, to_json
from results.compare.reasons import FAILURES, slug
from results.store.experiment import read_resolved
from results.store.typed import UnknownDataError, check_fields, typed

_IN_PARQUET = ("generations", "texts", "scores")


class BrokenRecordError(UserError):
    """A record that is absent or damaged, so that running its trial again is right."""


class MissingRecordError(BrokenRecordError):
    """There is no such record, or no longer: a run under way is about to replace it."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The Parquet file that belongs to a record: its size in bytes and BLAKE2b-128 digest."""

    bytes: int
    blake2b: str
    requests: int


@dataclass(frozen=True, slots=True)
class _Environment:
    """Of what a record tells of its environment, what is computed with."""

    fingerprint: str = ""
    cores: int = 0
    gpus: Sequence[Mapping[str, Any]] = ()
    packages: Mapping[str, Any] = field(default_factory=dict)
    since_invocation_s: float = 0.0
    workers: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class _PassBytes:
    """Of `Measured.pass_bytes`, what every record that has it has."""

    layer: int
    layers: int
    head: int
    kv: int


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """A record as its JSON file has it (no generations, texts or scores), its payload, and the
    digest of the JSON text."""

    record: TrialRecord
    payload: Payload
    digest: str

    @property
    def code(self) -> str | None:
        """A digest of the code that ran it and of the files that its options name, equal for all
        trials of a cell that one version measured."""
        return self.record.environment.get("code")

    @property
    def has_failed_requests(self) -> bool:
        """Whether it ended well though some of its requests did not."""
        reasons = self.record.validity.reasons
        return self.record.status == "ok" and any(slug(reason) == FAILURES for reason in reasons)


def digest(data: bytes) -> str:
    """BLAKE2b-128 as 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def remedy(path: Path, lost: str = "it") -> str:
    """What to do about a broken file in a folder of a run's folder, as the end of an error line;
    `lost`: what is to be deleted before the run is asked for again."""
    try:
        asked = read_resolved(path.parent.parent / "experiment.yaml").get("workloads")
    except UserError:
        asked = None
    if asked and all(one["workload"].get("source") == IMPORTED for one in asked):
        return "import the files again into a new folder"
    return f"delete {lost} and run the experiment again"


def to_text(record: TrialRecord, payload: Payload) -> bytes:
    """The content of a record's JSON file."""
    slim = dataclasses.replace(record, generations=(), texts={}, scores={})
    fields = {name: value for name, value in to_json(slim).items() if name not in _IN_PARQUET}
    data = {
        "schema_version": record.schema_version,
        **fields,
        "parquet": dataclasses.asdict(payload),
    }
    return json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "replace")


def from_text(path: Path, text: bytes) -> StoredTrial:
    """The inverse of `to_text`; `path` is for the error line and must bear the record's key.

    Raises `BrokenRecordError` for damage, `UserError` for a foreign file or another schema version.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"{path}: broken trial record ({error}); {remedy(path)}") from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise UserError(f"{path}: not a trial record (no 'schema_version'); move it elsewhere")
    if (version := data["schema_version"]) != SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {version}, expected {SCHEMA_VERSION}; read it with the "
            "decodebench that wrote it, or run into another folder"
        )
    try:
        record, payload = _parse(data)
    except UnknownDataError as error:
        raise UserError(
            f"{path}: written by a newer decodebench ({error} is not known); read it with that "
            "one, or run into another folder"
        ) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        message = f"{path}: a field is missing or strange ({error}); {remedy(path)}"
        raise BrokenRecordError(message) from None
    if record.key != path.stem:
        raise BrokenRecordError(f"{path}: holds the record of trial {record.key!r}; {remedy(path)}")
    return StoredTrial(record, payload, digest(text))


def _parse(data: dict[str, Any]) -> tuple[TrialRecord, Payload]:
    payload = typed(Payload, data.pop("parquet"), "parquet")
    canonical_json(data["trial"])  # refuses numbers that are none, which options may hold
    record = typed(TrialRecord, data)
    check_fields(_Environment, record.environment, "environment")
    if record.backend is not None and record.backend.measured.pass_bytes is not None:
        check_fields(_PassBytes, record.backend.measured.pass_bytes, "backend.measured.pass_bytes")
    return record, payload
