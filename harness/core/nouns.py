"""The nouns every part of decodebench shares. Standard library imports only.

Times are integer nanoseconds of the monotonic clock (`time.monotonic_ns`) where the name ends in
``_ns`` and seconds where it ends in ``_s``. Token ids are host integers: when a backend hands out a
`Commit`, the device work behind it is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.core.canonical import canonical_json as canonical_json
from harness.core.canonical import later
from harness.core.canonical import to_json as to_json
from harness.core.decisions import Decisions
from harness.core.names import QUALITY, REDRAWN

SCHEMA_VERSION = 1
UNKNOWN_TOKEN = -1  # in a `Commit`: a server counted it without saying which it was
SAMPLES_NEEDED: Mapping[str, int] = {"p50": 5, "p95": 20, "p99": 100}  # one lies beyond it
SAYS_NOTHING = 1000  # so far apart, the ends of a ratio's interval leave everything open
QUALITY_MARGIN = 0.02  # absolute, of a task's score: worse by no more counts as good
FinishReason = Literal["stop", "length", "error"]
Provenance = Literal[
    "official code", "re-implementation", "simulation", "imported",
    "measured cost, replayed decisions",
]  # fmt: skip
IMPORTED: Provenance = "imported"  # another tool measured it
REPLAYED: Provenance = "measured cost, replayed decisions"  # the answers say nothing
Status = Literal["ok", "failed", "timeout", "out_of_memory", "skipped"]
Answer = Literal["tokens", "label"]  # text, or one of a classifier's labels
LoadKind = Literal["closed", "poisson", "gamma", "constant", "trace", "quality"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy decoding."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A classifier's answer."""

    name: str
    confidence: float
    """Probability that the classifier gives it, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be answered. The reference answer stays in the workload."""

    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    arrival_s: float = 0.0  # seconds after the start of the load; 0 in a closed loop
    answer: Answer = "tokens"
    messages: tuple[tuple[str, str], ...] = ()
    """(role, content) of the chat behind the prompt, for a server that makes the prompt itself."""


@dataclass(frozen=True, slots=True)
class Commit:
    """New verified tokens of one request, as one `Backend.poll` handed them out."""

    request_id: str
    token_ids: tuple[int, ...]
    finished: FinishReason | None = None
    telemetry: Mapping[str, float] = field(default_factory=dict)
    """Counts that add up over a request's commits: drafted, accepted, layers_run, ..."""
    error: str | None = None  # what went wrong, when `finished` is "error"
    arrived_ns: int | None = None
    """From a backend whose work is done elsewhere: when the bytes of this commit reached this
    machine. It is the commit's stamp then; else the return of the poll is."""
    stamp_lag_ns: int = 0
    """By how much, at most, `arrived_ns` is later than the truth."""
    sent_ns: int | None = None
    """Likewise: when the request left, on one of its commits."""
    label: Label | None = None
    """The whole answer, where the request asks for a label: no tokens, and `finished` is "stop"."""
    decisions: Decisions | None = None
    """What was decided since the last commit that told, from a backend that was asked to record."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Found out before it served, or told by who calibrated it: explains, and is in no latency."""

    costs: Mapping[str, Any] | None = None
    """Microseconds of the parts of a step, as `harness.core.pass_costs` writes them."""
    predicted_speedup: float | None = None
    """Over plain decoding, at these costs, on a held-out text."""
    calibration: str | None = None
    """The statement of quality under which thresholds were chosen."""
    calibration_batch: int | None = None
    """So many requests were decoded together for it."""
    calibration_limits: Mapping[str, int | None] | None = None
    """By workload of its prompts the most tokens of an answer; None: that is not known."""
    calibration_data: Mapping[str, Mapping[str, Any]] | None = None
    """Likewise where its rows are from: `source`, `sha256` of a file, `options`, `rows`."""
    pass_bytes: Mapping[str, int] | None = None
    """Bytes that a pass reads: `layer` of weights for each of `layers`, `head` for the final head,
    of which `head_row` a token of the vocabulary (not in older records), `kv` for each position."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend says of itself; shown wherever its numbers are shown."""

    name: str
    version: str
    provenance: Provenance
    options: Mapping[str, Any]
    lossless: bool | None
    """Whether its greedy text is promised to equal plain decoding's; None: nobody can say."""
    capabilities: frozenset[str] = frozenset()
    measured: Measured = Measured()


@dataclass(slots=True)
class Generation:
    """One request's history, filled in by the load loop. Latencies derive from it in `results`."""

    request_id: str
    scheduled_ns: int
    """When the load said the request arrives (open loop), or its submit time (closed loop)."""
    submitted_ns: int
    client_lag_ns: int = 0
    """Lateness that is the harness's own: from the first moment it could have submitted (the later
    of the scheduled time and the return of the backend call in progress) to the submit. With a
    server: to when it left, from the scheduled time (closed loop: the answer that made room)."""
    commit_ns: list[int] = field(default_factory=list)
    commit_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finished: FinishReason | None = None
    """None: the trial ended before the request did."""
    error: str | None = None
    telemetry: dict[str, float] = field(default_factory=dict)
    stamp_lag_ns: list[int] = field(default_factory=list)
    """By how much each stamp of `commit_ns` can be late; empty: no stamp can."""
    label: Label | None = None  # the answer to a request for one: its one commit has no tokens
    decisions: Decisions | None = None
    """Where the backend recorded them."""
    token_layers: list[int] = field(default_factory=list)
    """Layers each token ran, where a backend leaves early; 0, or nothing at the end: not told."""


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint: bundled name, hub id or local path, with what pins its content. Or a shape: a
    published architecture whose weights are random numbers."""

    name: str
    """Of a shape: its name on the ladder, or the path of a ``config.json``."""
    revision: str | None = None
    checksum: str | None = None
    dtype: str = "float32"
    shape: bool = False
    layers: int | None = None  # of a shape: its first layers only, so many; None: all

    def label(self) -> str:
        """Short text for tables, which tells the models of a run apart: ``0.5b, 8 layers``."""
        if self.layers is None:
            return self.name
        return f"{self.name}, {self.layers} layer{'s' * (self.layers != 1)}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Which rows become requests. `checksum` pins the resulting prompts and answers."""

    name: str
    source: str = "bundled"
    """"bundled", "hub", or the file or folder the user named."""
    rows: int | None = None
    """How many distinct rows to draw; None: as many as there are requests."""
    options: Mapping[str, Any] = field(default_factory=dict)
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """When requests arrive. Rates are requests per second."""

    kind: LoadKind
    concurrency: int | None = None  # of an open load: an import's, whose tool held the rest back
    rate: float | None = None
    burstiness: float | None = None
    """Gamma arrivals: the shape parameter; 1 is Poisson, smaller is burstier."""
    trace: str | None = None
    checksum: str | None = None  # pins the arrival times that a trace's file holds
    redraw: bool | None = later()  # each repeat draws random arrivals anew, for all systems alike

    @property
    def is_open(self) -> bool:
        """Whether arrivals follow a clock rather than completions."""
        return self.kind not in ("closed", QUALITY)

    def label(self) -> str:
        """Short text for tables: ``closed c=8``, ``poisson 4/s``, ``poisson 4/s, at most 8``."""
        if not self.is_open:
            return QUALITY if self.kind == QUALITY else f"closed c={self.concurrency}"
        told = str(self.trace) if self.kind == "trace" else f"{self.rate:g}/s"
        shape = f" burstiness={self.burstiness:g}" if self.kind == "gamma" else ""
        most = f", at most {self.concurrency}" if self.concurrency else ""
        return f"{self.kind} {told}{shape}{most}{REDRAWN * bool(self.redraw)}"


@dataclass(frozen=True, slots=True)
class Slo:
    """The latency objective, in milliseconds. A bound that is None always holds."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One cell of an experiment: everything that decides what is run, and nothing else."""

    backend: str
    options: Mapping[str, Any]
    model: Model
    workload: Workload
    load: Load
    requests: int
    max_new_tokens: int
    sampling: Sampling = Sampling()
    ignore_eos: bool = False
    slo: Slo = Slo()
    seed: int = 0
    repeat: int = 0
    duration_s: float | None = None
    """Requests are submitted for so long, the `requests` prompts over and over; None: each once."""
    reload: bool | None = later()  # its engine is loaded for this repeat alone

    def key(self, fingerprint: str, code: str | None = None) -> str:
        """20 hex digits that name this trial, run by this code on this machine."""
        pinned = {"machine": fingerprint, "trial": to_json(self)} | ({"code": code} if code else {})
        return hashlib.sha256(canonical_json(pinned).encode()).hexdigest()[:20]

    @property
    def replays(self) -> bool:
        """Whether it asks for decisions from a trace in the place of the model's."""
        return self.options.get("replay") is not None

    def engine_key(self) -> str:
        """Equal for trials that can share one loaded engine."""
        content = canonical_json([self.backend, to_json(self.options), to_json(self.model)])
        return hashlib.sha256(content.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Validity:
    """May the numbers of a trial be believed? When not, why."""

    valid: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """What one trial left behind. Stored whole: the summary as JSON, the generations as Parquet."""

    key: str
    trial: Trial
    environment: Mapping[str, Any]
    status: Status
    backend: BackendInfo | None = None
    """None when the engine never came up."""
    error: str | None = None
    validity: Validity = Validity(valid=True)
    generations: Sequence[Generation] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Decoded answer by request id."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Task scores by request id, by the names of `results.registry.scores`."""
    peak_memory_bytes: int | None = None
    energy_j: float | None = None
    setup_s: float | None = None
    """Seconds to load the engine; shared by the trials of one child process."""
    started_at: str = ""
    """Wall clock, ISO 8601 in UTC; for people, never for arithmetic."""
    schema_version: int = SCHEMA_VERSION

    @property
    def is_replay(self) -> bool:
        """Whether its decisions were replayed, so that its answers say nothing."""
        return self.backend is not None and self.backend.provenance == REPLAYED
