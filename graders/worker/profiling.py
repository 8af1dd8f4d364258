"""The worker's side of the kernel ledger: ``profile`` traces calls, or takes kernels out.

``calls``  (each a list of leaves; fds: input, output), ``warm``, ``repeat``, and what ``setup`` is
           told (``params``; ``weights``, ``block``, and their fd behind the two): the sequence
           runs ``warm`` times, then ``repeat`` times under the profiler (CUPTI through
           ``torch.profiler``; kernels, copies and memsets only, no file is written). ``setup``,
           the inputs' copies to the device and the first call after a setup, which may pack
           weights, lie outside of what is traced: a sequence of one call is set up once, of a
           longer one the calls after the first are traced. Answer: ``lines``, one
           for each name (``name, what, launches, ns, graph``; the ``MOST_LINES`` of most GPU time),
           ``rest`` (launches and ns of the others), ``calls`` (how many were traced).
``noop``   ``arm`` before the submission is imported, ``report`` afterwards: see
           ``graders.worker.noops``.

Where no kernel of our own shows in a trace, CUPTI is not there or not permitted: then the answer
says so in ``refused``. All of it is a claim: it is taken inside the submission's process.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from typing import Any

Frame = dict[str, Any]
MOST_LINES = 200
MOST_NAME = 300  # characters
REFUSED_TEXT = 300
_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
"""Activities of Kineto that are work of a GPU; beside them there are annotations, waits, calls."""
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
_TOLD = ("weights", "block")
_WAITS = ("Context Sync", "Stream Sync", "Event Sync", "Stream Wait", "Unknown Sync")


def profile(worker: Any, frame: Frame) -> Frame:
    """See the module."""
    if "noop" in frame:
        noops, arm = worker.beside("noops"), frame["noop"] == "arm"
        told = noops.arm(worker.beside("cuda_text")) if arm else noops.report()
        return {"ok": "profile", **told}
    if why := _refusal(worker):
        return {"ok": "profile", "refused": why}
    held = worker.fds
    try:
        return {"ok": "profile", "refused": "", **_profiled(worker, frame)}
    except worker.beside("refusals").Refused:
        raise
    except Exception as error:  # noqa: BLE001 - the profiler's troubles are no failure
        return {"ok": "profile", "refused": _words(error)}
    finally:
        worker.fds = held  # for who closes them


def _profiled(worker: Any, frame: Frame) -> Frame:
    calls, tally = _Calls(worker, frame), Tally()
    for _ in range(max(frame["warm"], 1)):
        calls.begin()
        calls.run()
    for _ in range(frame["repeat"]):
        calls.begin()
        with _traced(worker.arrays.torch) as events:
            calls.run()
        tally.add(events)
    return {"calls": frame["repeat"] * max(len(frame["calls"]) - 1, 1), **tally.answer()}


class _Calls:
    """The sequence of calls of a frame, again and again."""

    def __init__(self, worker: Any, frame: Frame) -> None:
        self._worker, self._frame = worker, frame
        self._inputs: list[dict[str, Any]] = []
        self._memory, self._weights = worker.fds[:2], worker.fds[2:]
        self._is_set_up = False

    def begin(self) -> None:
        """Fresh inputs, a new state where calls change it, and nothing on the device to do."""
        worker, self._inputs = self._worker, []
        worker.fds = self._memory
        for leaves in self._frame["calls"]:
            self._inputs.append(worker.inputs({"inputs": leaves}))
            worker.fds = []  # the first has mapped them
        if len(self._inputs) == 1 and self._is_set_up:
            return
        worker.fds = self._weights
        told = {name: self._frame[name] for name in _TOLD if name in self._frame}
        worker.setup(told | {"params": dict(self._frame["params"])})  # to which weights are added
        self._is_set_up = True
        if len(self._inputs) > 1:
            self._call(self._inputs.pop(0))

    def run(self) -> None:
        """The calls, each waited for."""
        for inputs in self._inputs:
            self._call(inputs)

    def _call(self, inputs: dict[str, Any]) -> None:
        self._worker.run(inputs, self._worker.arrays.synchronise)


class Tally:
    """Launches and nanoseconds by name, over several traces."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, bool], list[int]] = {}

    def add(self, events: Iterable[Any]) -> None:
        """The events of one trace (``_KinetoEvent``)."""
        events = list(events)
        graphs = {e.correlation_id() for e in events if e.name().startswith(_GRAPH_LAUNCHES)}
        for event in events:
            if what := what_of(event):
                key = event.name()[:MOST_NAME], what, event.correlation_id() in graphs
                line = self._lines.setdefault(key, [0, 0])
                line[0] += 1
                line[1] += event.duration_ns()

    def answer(self) -> Frame:
        """The part of the answer that tells of it."""
        ranked = sorted(self._lines.items(), key=lambda line: -line[1][1])
        lines = [
            {"name": name, "what": what, "launches": launches, "ns": ns, "graph": graph}
            for (name, what, graph), (launches, ns) in ranked[:MOST_LINES]
        ]
        rest = [sum(counts[n] for _, counts in ranked[MOST_LINES:]) for n in (0, 1)]
        return {"lines": lines, "rest": rest}


def what_of(event: Any) -> str:
    """``kernel``, ``memcpy`` or ``memset``; empty for what is no work of a GPU.

    A range that a submission has named shows on the GPU's lane too: it is no kernel. Torch before
    2.10 or so does not name activities, so there the name has to tell.
    """
    activity = getattr(event, "activity_type", str)()
    if isinstance(activity, str) and activity:
        return _KINDS.get(activity.lower(), "")
    if not str(event.device_type()).endswith("CUDA") or event.is_user_annotation():
        return ""
    name = event.name()
    if name.startswith(_WAITS):
        return ""
    return {"Memcpy": "memcpy", "Memset": "memset"}.get(name.partition(" ")[0], "kernel")


@contextlib.contextmanager
def _traced(torch: Any) -> Iterator[list[Any]]:
    """A trace; its list fills when the block ends."""
    found: list[Any] = []
    cuda = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[cuda]) as profiler:
        yield found
        torch.cuda.synchronize()
    found += profiler.profiler.kineto_results.events()


def _refusal(worker: Any) -> str:
    """Why there can be no trace; empty after one in which a kernel of our own shows.

    It also brings CUPTI up before anything of the submission runs under it.
    """
    torch = getattr(worker.arrays, "torch", None)
    if torch is None:
        return "the worker has no GPU"
    try:
        importlib.import_module("torch.profiler")
        with _traced(torch) as events:
            torch.ones(8, device="cuda").add_(1)
    except Exception as error:  # noqa: BLE001 - the profiler's troubles are no failure
        return _words(error)
    if any(what_of(event) == "kernel" for event in events):
        return ""
    return "no kernel shows in a trace: CUPTI is missing or not permitted"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:REFUSED_TEXT]
