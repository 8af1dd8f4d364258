"""The declaration of a task, as read from ``tasks/library/<name>/task.toml``.

A task is data plus a reference: tasks declare, graders execute. A folder holds

- ``task.toml``             this declaration
- ``public/prompt.md``      what the agent is asked
- ``public/reference.py``   ``make_inputs(shape, seed)`` and ``reference(params, calls)``, in NumPy
- ``public/adapter.py``     ``setup`` and ``run``: from the canonical call to the submission's names
- ``sealed/cases.py``       ``cases(reference, seed, tier, device)``: stress and property cases
- ``sealed/rubric.toml``    dimensions and items
- ``submissions/{oracle,naive,wrong}/`` and ``submissions/cheats/<name>/`` (with ``expect.toml``)

Only ``public/`` ever enters a session's sandbox. Only ``public/adapter.py`` enters a worker.

Arrays are named: inputs and outputs are ``dict[str, ndarray]`` on the wire. A *call* is one
``run``: inputs of one call in, outputs of one call out. Stateful tasks (``kv-cache``) make several
calls on one ``setup``.

Signatures inside a task folder (plain Python and NumPy, no import of this product in ``public/``)::

    make_inputs(shape: dict, seed: int) -> {"params": dict, "calls": [dict[str, ndarray], ...]}
        # `shape` holds the dims and "dtype"; one counter-based generator seeded by `seed`
    reference(params: dict, calls: list) -> [dict[str, ndarray], ...]     # fp64 where it matters
    setup(entries, params: dict) -> state                                 # untimed
    run(entries, state, inputs: dict) -> dict[str, array]                 # one timed call
        # `entries.<name>` is the submission's callable, None for a missing optional one
    cases(reference: module, seed: int, tier: str, device: str) -> Iterator[tasks.case.Case]
        # `device` is "cpu" or "cuda": a task may have cases for one of them only

Weights are a dict of arrays under ``params["weights"]``; see ``tasks.tensors`` for tasks whose
interface is torch's.

NumPy has no bfloat16: such an array is its raw bits in ``uint16``, a CUDA tensor of that dtype in
``run``, and the adapter views it as what it is. ``float8_e4m3`` and ``float8_e5m2`` are ``uint8``
in the same way. ``interface.raw_outputs`` and ``raw_inputs`` name such leaves, so that they are
compared, and varied, as the floats that they are.

Leaves of outputs have paths. ``run`` may return a dict (``y``), a tuple (``0``, ``1``), either of
them one level down (``state.k``, ``cache.0``), or the one array that there is. Where the call
writes to an input (in place, or the state of a decoder), ``interface.written`` says which output
that input is after the call; ``reference`` returns it like any other.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

RawFloat = Literal["bfloat16", "float8_e4m3", "float8_e5m2"]


class TaskPart(BaseModel):
    """Base of all declarations: immutable, and a field that nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Shape(TaskPart):
    """One size. ``dims`` are the names that formulas and ``make_inputs`` use."""

    name: str
    dims: dict[str, int]
    dtype: str = "float32"


class Tolerance(TaskPart):
    """Elementwise atol + rtol * |ref|, per dtype of the output."""

    atol: float
    rtol: float


class Gate(TaskPart):
    """The normative gate: rms(out - ref64) / rms(ref64) at most ``rms_ratio``, per dtype.

    ``honest`` is the largest ratio that honest work was seen to have, for a dtype of whose outputs
    that is more than rounding the result: a pipeline that rounds after each of its parts. What is
    seen is written beside it; the gate may be twice as wide.
    """

    rms_ratio: dict[str, float]
    honest: dict[str, float] = Field(default_factory=dict)


class Work(TaskPart):
    """Roofline formulas over the shape's dims and ``itemsize``; see ``tasks.formula``."""

    flops: str
    bytes: str
    floor_flops: str = "0"  # least work for these very inputs; beating it is a finding
    floor_bytes: str = "0"


class EntryPoint(TaskPart):
    """One name that the adapter calls, and the spellings that are accepted for it."""

    name: str
    accepts: tuple[str, ...]
    optional: bool = False


class Interface(TaskPart):
    """How a submission is found and called."""

    file: str  # the file that the prompt names
    entries: tuple[EntryPoint, ...]
    outputs: tuple[str, ...]  # paths of the leaves that every call returns or writes
    mutable_inputs: tuple[str, ...] = ()  # a call may change these; all others stay as they are
    written: dict[str, str] = Field(default_factory=dict)  # output -> mutable input that holds it
    raw_outputs: dict[str, RawFloat] = Field(default_factory=dict)  # output -> what its bits are
    raw_inputs: dict[str, RawFloat] = Field(default_factory=dict)
    raw_weights: dict[str, RawFloat] = Field(default_factory=dict)  # pattern of a weight's name
    dealt_inputs: tuple[str, ...] = ()  # float inputs with a structure that a window would cut
    points_into: dict[str, str] = Field(default_factory=dict)
    """Integer output -> the input along whose last axis it points. Ties make several answers
    right: what is pointed at must equal what the reference points at, each place once a row."""
    framework: Literal["arrays", "torch"] = "arrays"  # torch: tensors on a CPU too (tasks.tensors)

    @model_validator(mode="after")
    def _leaves_exist(self) -> Self:
        for field, leaves in (("written", self.written), ("raw_outputs", self.raw_outputs)):
            if unknown := sorted(set(leaves) - set(self.outputs)):
                raise ValueError(f"{field} names {unknown}, which are no outputs")
        if fixed := sorted(set(self.written.values()) - set(self.mutable_inputs)):
            raise ValueError(f"written names {fixed}, which are no mutable_inputs")
        return self


class Sizes(TaskPart):
    """The sizes that one dim may have in a generated case, both ends included."""

    least: int
    most: int
    multiple_of: int = 1


class Properties(TaskPart):
    """What generated cases may do beyond what holds for every task (``tasks.properties``)."""

    cases: int = 24  # of the quick tier; twice as many in the full one
    dims: dict[str, Sizes] = Field(default_factory=dict)  # those left out: as in a smoke shape
    holds: tuple[str, ...] = ()  # formulas over the dims, none negative in a drawn size: "V - k"
    inputs: tuple[str, ...] | None = None  # float inputs whose values may vary; None: all
    leave_out: tuple[str, ...] = ()  # patterns that the contract excludes
    strided: tuple[str, ...] = ()  # inputs that may come as views
    largest: float | None = None  # magnitude of a value; None: 16 times the largest of a draw
    repeats: bool = True  # A, B, A' on one `setup`: only where calls know nothing of each other


class Limits(TaskPart):
    """Deadlines and memory of one submission under grading."""

    build_s: float = 120.0
    call_s: float = 60.0
    total_s: float = 900.0
    memory_bytes: int = 4 << 30


class Task(TaskPart):
    """One task. ``digest`` covers every file that can change a result (not the submissions)."""

    schema_version: Literal[1] = 1
    name: str
    version: int
    scoring_version: int
    title: str
    summary: str
    devices: tuple[Literal["cpu", "cuda"], ...]
    languages: tuple[str, ...]  # accepted: "numpy", "c", "triton", "cuda_raw", ...
    regime: Literal["memory", "compute"]
    headline: Literal["rubric", "peak_fraction", "milliseconds", "speedup"]
    shapes: tuple[Shape, ...]
    smoke: tuple[Shape, ...]
    tolerance: dict[str, Tolerance]
    gate: Gate
    work: Work
    interface: Interface
    properties: Properties = Properties()
    limits: Limits = Limits()
    forbidden_imports: tuple[str, ...] = ()
    forbidden_calls: tuple[str, ...] = ()
    allowed_packages: tuple[str, ...] = ("numpy",)
    most_launches: int | None = None  # kernels, copies and memsets of a call on a GPU; None: any

    # filled by the loader
    folder: Path = Field(exclude=True)
    digest: str = Field(exclude=True)

    @property
    def prompt(self) -> str:
        """The words of the request."""
        return (self.folder / "public" / "prompt.md").read_text("utf-8")


class RubricItem(TaskPart):
    """One item. A measured one names what the grader measures; a judged one is a question."""

    id: str
    dimension: str
    weight: float
    kind: Literal["measured", "judged"]
    measure: Literal["cases", "cost_growth", "memory_growth", "self_test", "roofline", ""] = ""
    question: str = ""
    anchors: tuple[str, ...] = ()  # five, for 0..4, of a judged item
    critical: bool = False  # failing it caps the overall
    params: dict[str, JsonValue] = Field(default_factory=dict)


class Rubric(TaskPart):
    """``sealed/rubric.toml``: dimensions with weights, items, and the cap of a critical defect."""

    version: int
    dimensions: dict[str, float]
    items: tuple[RubricItem, ...]
    critical_cap: float = 50.0


class DeckCell(TaskPart):
    """One task of a deck, locked by digest once released."""

    task: str
    version: int | None = None  # of the task when it was locked
    digest: str | None = None


class Deck(TaskPart):
    """``tasks/decks/<name>.toml``."""

    schema_version: Literal[1] = 1
    name: str
    title: str
    score: Literal["rubric", "peak_fraction", "speedup"]
    canonical_hardware: str
    cells: tuple[DeckCell, ...]
