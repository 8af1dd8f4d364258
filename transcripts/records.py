"""What the archive stores beside transcripts: entrant, cell, attempt, grade, audit.

Every record is frozen, refuses unknown fields, and has a digest over its canonical JSON. Records
that are files of their own carry ``schema_version``. Times are UTC, durations are in the unit that
the field's name ends with.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from transcripts.words import End, EvidenceKind, GradeResult, Strength, Verdict


class Record(BaseModel):
    """Base of all records: immutable, closed, comparable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON."""
        return digest_of(self.model_dump(mode="json"))


def canonical_json(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "surrogatepass")


def digest_of(value: Any) -> str:
    """sha256 (hex) of ``value``'s canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


# --- who is measured ---------------------------------------------------------------------------


class ModelIdentity(Record):
    """The model as served: two checkpoints behind one endpoint differ by ``label``."""

    name: str  # as asked for on the command line, for people
    served_id: str  # what is sent as `model`
    label: str | None = None
    weights_digest: str | None = None
    server_flags: tuple[str, ...] = ()


class Budget(Record):
    """Caps asked for; ``None`` is unlimited, which is the default."""

    max_steps: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_cost_usd: float | None = None


class Entrant(Record):
    """Everything that makes a result somebody's. The digest decides; the name is for people."""

    model: ModelIdentity
    route: str  # "<protocol>:<base URL>", or "scripted" for the built-in models; never a key
    harness: str  # "loop", "claude-code", ...; "unknown" for imports that do not say
    harness_version: str
    effort: str | None = None
    sampling: dict[str, JsonValue] = Field(default_factory=dict)
    budget: Budget = Budget()
    network: str = "none"  # "none", "host", or the sorted allow-list joined by ","
    prompt_digest: str = ""  # of the harness's own instructions and tools
    interventions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a person calls it: the model's name, its label in brackets where there is one."""
        return f"{self.model.name}[{self.model.label}]" if self.model.label else self.model.name


class CellKey(Record):
    """One square of the grid: entrant x task. ``id`` names its claims."""

    deck: str
    task: str
    task_digest: str
    entrant_name: str
    entrant_digest: str

    @property
    def id(self) -> str:
        """16 hex digits of the task's and the entrant's digests."""
        return hashlib.sha256(f"{self.task_digest}:{self.entrant_digest}".encode()).hexdigest()[:16]


# --- one archived try --------------------------------------------------------------------------


class Usage(Record):
    """Tokens, each counted once; cached input is not part of ``input_tokens``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0  # part of output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        mine, theirs = self.model_dump(), other.model_dump()
        return Usage(**{field: mine[field] + theirs[field] for field in mine})


class Outcome(Record):
    """How a session ended and why, in one line a person can act on."""

    end: End
    reason: str = ""  # which limit, which fault
    message: str = ""


class Fingerprint(Record):
    """What ran: code, machine, device and versions."""

    product_version: str
    code_digest: str
    python: str
    platform: str
    kernel: str
    cpu: str
    cores: int
    memory_bytes: int
    host: str  # digest of the host's name: equal hosts can be told, names stay private
    sandbox: str  # "bubblewrap", "docker", "process", "none"
    image: str | None = None
    device: str = "cpu"  # "cpu", or the GPU's name
    device_uuid: str | None = None
    driver: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)


class FileDigest(Record):
    """One handed-in file."""

    path: str  # relative, forward slashes
    size_bytes: int
    sha256: str


class ImportSource(Record):
    """Where an imported attempt came from."""

    dialect: str
    file_name: str
    sha256: str
    bad_lines: tuple[int, ...] = ()
    contradictions: tuple[str, ...] = ()  # what the log says against what the importer was told


class Attempt(Record):
    """One archived try of a cell: ``attempt.json``. ``outcome`` is None while the session lives."""

    schema_version: Literal[1] = 1
    attempt_id: str  # UUIDv7: sorts by time, never collides across machines
    cell: CellKey
    entrant: Entrant
    origin: Literal["session", "imported"] = "session"
    source: ImportSource | None = None
    plan_digest: str | None = None
    fingerprint: Fingerprint | None = None  # None for imports that do not say
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None  # None is unknown, never zero by default
    steps: int = 0
    submission: tuple[FileDigest, ...] = ()

    @property
    def unsandboxed(self) -> bool:
        """True when the session ran without isolation: its cells are marked on boards."""
        return self.fingerprint is not None and self.fingerprint.sandbox == "process"


# --- a grade: measurements, never scores -------------------------------------------------------


class EventsClaim(Record):
    """What the worker's own CUDA events say of a shape, and whether the referee's clock bears it.

    A claim: it is taken inside the submission's process. Milliseconds.
    """

    calls: int
    median_ms: float  # idle stream, caches flushed: as the public boards measure
    ci_low_ms: float  # 95% interval of the median
    ci_high_ms: float
    device_ms: float | None = None  # median queued behind a blocking kernel: no launch latency
    predicted_ms: float  # what an honest worker's events would say, from the referee's clock
    accepted: bool  # False: the certified figure stands in its place
    why: str = ""


class ShapeTiming(Record):
    """Summary of the timed calls of one shape. ``median_ms`` is the figure that scores."""

    shape: str
    method: str  # "referee_clock", "cuda_events", ...
    certified: bool  # True when no part of the figure rests on the worker's word
    calls: int
    median_ms: float
    ci_low_ms: float  # 95% interval of the median
    ci_high_ms: float
    min_ms: float
    overhead_ms: float = 0.0  # the trip with a trusted worker; only `paced_estimate` subtracts it
    baseline_ms: float | None = None  # the task's own plain code, in the same run
    certified_ms: float | None = None  # GPU: go to binding answer by the referee's clock, whole
    claim: EventsClaim | None = None


class ShapeCorrectness(Record):
    """Worst result over the seeds of one shape (or stress variant, or case group)."""

    shape: str
    group: str  # "nominal", "stress:<name>", "property", "item:<id>"
    passed: bool
    runs: int
    failures: int
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    rms_ratio: float | None = None  # rms(out - ref64) / rms(ref64)
    bad_elements: int = 0
    worst_leaf: str | None = None
    worst_index: tuple[int, ...] | None = None
    seed: str | None = None  # replays the worst run
    detail: str = ""


class CheckResult(Record):
    """One probe: passed, failed, or not run (None), with evidence."""

    check: str
    passed: bool | None
    mechanism: str | None = None  # the suspicion that a pass clears, and no other
    detail: str = ""
    evidence: dict[str, JsonValue] = Field(default_factory=dict)


class ItemMeasurement(Record):
    """One measured rubric item: how many of its cases passed, or why it could not be measured."""

    item: str
    measurable: bool
    passed: int = 0
    total: int = 0
    value: float | None = None  # the figure, where the item is a figure
    unit: str = ""
    detail: str = ""


class GpuReading(Record):
    """What the driver said of a GPU at one moment. None where it does not say."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    throttled_by: tuple[str, ...] = ()  # the driver's active reasons that slow clocks down
    slowed_us: int | None = None  # by heat or power brakes since the driver started: a counter
    foreign_processes: int | None = None  # compute processes that are not the grader's own
    persistence: bool | None = None
    mig: str | None = None


class KernelLine(Record):
    """One kernel of a ledger, with its share of the GPU time of a call. A claim of the worker."""

    name: str
    kind: Literal["cuda_raw", "ptx", "cutlass", "triton", "library", "eager", "memory"]
    launches: float  # a call
    gpu_share: float  # 0..1
    in_graph: bool = False


class Ledger(Record):
    """What the profiler saw of a call in one phase: a claim, to be compared between phases."""

    phase: Literal["check", "stress", "timed"]
    shape: str
    launches: float  # kernels, memsets and copies a call
    kernels: tuple[KernelLine, ...] = ()
    language: str | None = None  # of the authored work, by share of GPU time


class DeviceState(Record):
    """The measured device and its peaks as known at that time."""

    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str | None = None
    hardware: str  # key of tasks/hardware.toml, or "cpu:<model>"
    measured_bandwidth_gbs: float | None = None  # STREAM-like on a CPU, a copy on a GPU
    measured_gflops: float | None = None  # float32 GEMM
    measured_gflops_by_dtype: dict[str, float] = Field(default_factory=dict)  # GEMMs of others
    load_before: float | None = None  # 1-minute load average divided by cores
    load_after: float | None = None
    before: GpuReading | None = None
    after: GpuReading | None = None


class Lease(Record):
    """The exclusive turn under which a grade was measured."""

    name: str  # "host-cpu", or the GPU's UUID
    waited_s: float
    held_s: float


class Grade(Record):
    """``grades/<id>.json``: what was measured, with what, against which digests. No score."""

    schema_version: Literal[1] = 1
    grade_id: str
    attempt_id: str | None  # None for a submission that is not in an archive
    attempt_seal: str | None  # digest of the attempt's seal.json
    submission_digest: str
    task: str
    task_digest: str
    checks_digest: str  # code of correctness and probes
    timing_digest: str  # code of the timing method
    toolchain_digest: str
    scoring_version: int  # of the task, at grading time
    mode: Literal["in_run", "isolated"]
    tier: Literal["quick", "full"]
    isolation: str  # how the worker was isolated: "bubblewrap", "process", "docker"
    result: GradeResult
    reason: str = ""  # for void: why; for failures: the typed detail
    message: str = ""  # one line for people
    reproduce: str = ""
    language: str | None = None
    seed: str  # of the frozen plan of cases
    device: DeviceState
    lease: Lease | None = None
    correctness: tuple[ShapeCorrectness, ...] = ()
    timings: tuple[ShapeTiming, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    items: tuple[ItemMeasurement, ...] = ()
    ledgers: tuple[Ledger, ...] = ()
    phases: dict[str, float] = Field(default_factory=dict)  # seconds that each part took
    log_tail: str = ""  # what the submission printed: means nothing, kept for people
    fingerprint: Fingerprint
    started_at: datetime
    seconds: float


# --- an audit ----------------------------------------------------------------------------------


class Finding(Record):
    """One piece of evidence, with a quote that was verified byte for byte against the artefact."""

    check: str
    check_version: int
    kind: EvidenceKind
    verdict: Verdict  # the class it argues for
    strength: Strength
    mechanism: str  # "cache:pointer", "timing:patched-clock", ...: what a clearing probe must name
    place: str  # file in the submission, or "transcript", or a check of the grade
    lines: tuple[int, int] | None = None  # first and last, 1-based
    steps: tuple[int, ...] = ()  # event numbers
    quote: str
    why: str
    reproduce: str


class Audit(Record):
    """``audits/<id>.json``: findings, what was looked at, and the one verdict with its rule."""

    schema_version: Literal[1] = 1
    audit_id: str
    attempt_id: str | None
    attempt_seal: str | None
    submission_digest: str
    task: str
    task_digest: str
    grade_ids: tuple[str, ...]
    auditor_version: str
    coverage: tuple[str, ...]  # e.g. ("source", "behaviour", "transcript")
    missing: tuple[str, ...] = ()  # what was not there to look at, said plainly
    findings: tuple[Finding, ...] = ()
    cleared: tuple[str, ...] = ()  # mechanisms cleared by a dynamic probe
    verdict: Verdict
    rule: str  # the row of the verdict table that decided
    summary: str
    at: datetime


def sealed(record: Record) -> dict[str, Any]:
    """The self-sealed file form of a grade or an audit: the record and the digest of it."""
    body = record.model_dump(mode="json")
    return {"record": body, "sha256": digest_of(body)}


def is_intact(document: Mapping[str, Any]) -> bool:
    """True when a self-sealed document's digest matches its record."""
    return document.get("sha256") == digest_of(document.get("record"))
