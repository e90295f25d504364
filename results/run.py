"""A stored run: its trials, their metrics, and the same as tidy pandas frames.

Everything is computed when first asked for and kept; pandas is imported only for the frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.nouns import canonical_json
from results.compare.pairing import ComparableTrials, Member, group_key, make_group, ordering
from results.store import cache as kept
from results.store.folder import Store
from results.store.records import BrokenRecordError, MissingRecordError, StoredTrial
from results.versions import newest

if TYPE_CHECKING:
    import pandas as pd

    from results.frame import TrialNames
    from results.prompts import PromptLengths
    from results.store.columns import TrialFile

_READERS = 2


def load(
    directory: Path | str,
    damaged: Callable[[UserError], None] | None = None,
    *,
    every_byte: bool = False,
) -> Run:
    """Open the folder that `decodebench run` wrote. `damaged` is told of each broken record, and
    the others are the run: at once where a file is cut short, with `every_byte` for all damage,
    else when its requests are read.

    Raises `UserError` when it is missing, is no results folder, or holds a broken record and
    nobody is to be told.
    """
    path = Path(directory)
    if path.is_file():
        raise UserError(
            f"{path}: a file; expected a folder that 'run' has written (one of record is for "
            "'compare' and 'history')"
        )
    return Run(path, damaged, every_byte)


class Run:
    """The trials of one folder, of doubles the newest (`results.versions`). `experiment` is the
    resolved experiment as a mapping."""

    def __init__(
        self,
        path: Path,
        damaged: Callable[[UserError], None] | None = None,
        every_byte: bool = False,
    ) -> None:
        self.path = path
        self.store = Store(path)
        self.experiment: dict[str, Any] = self.store.read_experiment()
        self._damaged = damaged
        self.left_out: list[str] = []
        """Why each broken record is not among `stored`."""
        order = ordering(self.experiment)
        stored, keys = [], self.store.keys()
        for key in keys:
            try:
                found = self.store.read_stored(key)
                ended_well = found.record.status == "ok"
                if damaged is not None and ended_well and (every_byte or self._is_cut(found)):
                    self._open(found)  # says what is wrong
                stored.append(found)
            except MissingRecordError:  # a run replaces it just now
                continue
            except BrokenRecordError as error:
                self._leave_out(error)
        stored.sort(key=lambda s: order(s.record.trial))
        self.stored: list[StoredTrial] = newest(self.store, stored)

    def _is_cut(self, found: StoredTrial) -> bool:
        size, _ = self.store.payload_state(found.record.key)
        return size != found.payload.bytes

    def _leave_out(self, error: BrokenRecordError) -> None:
        if self._damaged is None:
            raise error
        if str(error) not in self.left_out:
            self.left_out.append(str(error))
            self._damaged(error)

    def without(self, keys: Collection[str]) -> Run:
        """The same run as if the trials of these keys were not stored."""
        found = Run(self.path, lambda _: None)
        found.stored = [stored for stored in self.stored if stored.record.key not in keys]
        found._damaged, found.left_out = self._damaged, self.left_out
        return found

    @cached_property
    def evaluated(self) -> dict[str, list[dict[str, Any]]]:
        """{"trials": ..., "cells": ..., "effects": ..., "texts": ...} of `results.rows`. Kept in
        DIR/cache."""
        from results.metrics.step_time import best_ceilings, machine_of
        from results.rows import evaluate

        name = kept.digest(self._content())
        found = kept.load(self.store.cache_folder, "metrics", name)
        if found is None:
            before = len(self.stored)
            known = best_ceilings(stored.record for stored in self.stored)
            parts = [
                evaluate(members, self.experiment, known.get(machine_of(members[0].stored.record)))
                for members in self.groups()
            ]
            found = {
                "trials": [row for part in parts for row in part.trials],
                "cells": [cell for part in parts for cell in part.cells],
                "effects": [one for part in parts for one in part.effects],
                "texts": [one for part in parts for one in part.texts],
            }
            if len(self.stored) == before:  # else they are not what the name says
                kept.save(self.store.cache_folder, "metrics", name, found)
        return dict(found)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial: what was run, status, validity and every metric. `options` is JSON
        text, `invalid_reasons` and `void_metrics` are tuples."""
        from results import frame

        return frame.trial_frame(self.evaluated["trials"])

    @cached_property
    def _names(self) -> dict[str, TrialNames]:
        from results import frame

        return frame.names(self.evaluated["trials"])

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request of every trial that ended well (see `frame.request_columns`)."""
        from results import frame

        return frame.request_frames(self.members(), self._names, self.prompt_lengths)

    @cached_property
    def commits(self) -> pd.DataFrame:
        """One row per commit of every trial that ended well (see `frame.COMMIT_COLUMNS`)."""
        from results import frame

        return frame.commit_frames(self.members(), self._names)

    @cached_property
    def vllm_bench(self) -> pd.DataFrame:
        """One row per trial that ended well: `key`, and the same run as `vllm bench serve` would
        have told it, by its names (see `metrics.other_tools`); to be set beside `trials`."""
        from results.exports.frame import vllm_bench_frame

        return vllm_bench_frame(self.members(), self._names, self.prompt_lengths)

    @cached_property
    def texts(self) -> pd.DataFrame:
        """One row per backend and what its text is held against: the verdict and what it rests on
        (see `results.compare.lossless.frame.TEXT_COLUMNS`)."""
        from results.compare.lossless.frame import text_frame
        from results.rows import text_verdicts

        return text_frame(text_verdicts(self))

    @cached_property
    def prompts(self) -> pd.DataFrame:
        """One row per prompt of each workload (see `prompts.PROMPT_COLUMNS`). Without rows when
        none were stored."""
        from results.prompts import prompt_frame

        workloads = (stored.record.trial.workload for stored in self.stored)
        return prompt_frame(workloads, self.store.read_prompts)

    @cached_property
    def prompt_lengths(self) -> PromptLengths:
        """Of a workload's checksum the tokens of its prompts by request_id, as far as they are
        known. Each file is read when it is first asked for."""
        return cache(self.store.read_prompt_lengths)

    def groups(self) -> Iterator[list[Member]]:
        """The trials that may be compared with each other, with their requests, group by group.
        Those that prove to be broken are left out, of `stored` too."""
        grouped: dict[str, list[StoredTrial]] = {}
        for stored in self.stored:
            grouped.setdefault(group_key(stored), []).append(stored)
        with ThreadPoolExecutor(_READERS) as pool:
            # the next group is read while the caller works on this one
            reading: deque[Iterator[tuple[StoredTrial, Member | BrokenRecordError]]] = deque()
            for members in [*grouped.values(), []]:
                reading.append(pool.map(self._member, members))
                if len(reading) > 1 and (whole := self._whole(reading.popleft())):
                    yield whole

    def _whole(
        self, found: Iterator[tuple[StoredTrial, Member | BrokenRecordError]]
    ) -> list[Member]:
        whole = []
        for stored, one in found:
            if isinstance(one, Member):
                whole.append(one)
                continue
            self._leave_out(one)
            self.stored = [other for other in self.stored if other is not stored]
        return whole

    def members(self) -> Iterator[tuple[Member, ComparableTrials]]:
        """Every trial that ended well, with the group that it belongs to."""
        for members in self.groups():
            group = make_group(members, self.experiment)
            for member in members:
                if member.requests is not None:
                    yield member, group

    def _member(self, stored: StoredTrial) -> tuple[StoredTrial, Member | BrokenRecordError]:
        from results.metrics import arrays

        try:
            ended_well = stored.record.status == "ok"
            requests = arrays.from_file(self._open(stored)) if ended_well else None
        except BrokenRecordError as error:
            return stored, error
        return stored, Member(stored, requests)

    def _open(self, stored: StoredTrial) -> TrialFile:
        """Raises `MissingRecordError` where its record is another one by now."""
        key = stored.record.key
        try:
            return self.store.open_file(key, stored.payload)
        except BrokenRecordError:
            if self._is_replaced(stored):
                where = self.store.trials_folder / f"{key}.json"
                line = f"{where}: a run has replaced it just now; try again"
                raise MissingRecordError(line) from None
            raise

    def _is_replaced(self, stored: StoredTrial) -> bool:
        try:
            return self.store.read_stored(stored.record.key).digest != stored.digest
        except MissingRecordError:
            return True
        except BrokenRecordError:
            return False

    def _content(self) -> Iterator[str]:
        """All that `evaluated` depends on."""
        yield canonical_json(self.experiment)
        for stored in self.stored:
            yield stored.digest
            yield str(self.store.payload_state(stored.record.key))
