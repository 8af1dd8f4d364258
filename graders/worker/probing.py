"""The worker's side of probes that need more than a plain call: ``probe`` with ``what`` it is.

``late``     the outputs are copied as soon as the caller's own stream is done, and again ``wait_s``
             later when the whole device is: leaves ``y`` and ``later/y``, each in half of the room
``stream``   the call runs with a side stream current, the default stream is busy for ``busy_ms``,
             and nothing but the side stream is waited for
``context``  whether the thread's CUDA context is still the one that it had at the first question

On a CPU only ``late`` means anything; there a thread takes the place of a stream.
"""

import ctypes
import time
from typing import Any

Frame = dict[str, Any]
LATER = "later/"
CYCLES_A_MS = 2_000_000  # of a clock of 2 GHz: the busy kernel lasts at least as long on any GPU
HOG = 8192  # side of the matrices of a product that keeps every multiprocessor busy for 20 ms or so
_kept: dict[str, Any] = {}


def probe(worker: Any, frame: Frame) -> Frame:
    """Run one probe; answered like a call."""
    step = {"late": late, "stream": stream, "context": context}[frame["what"]]
    return {"ok": "probe", "n": frame.get("n"), **step(worker, frame)}


def late(worker: Any, frame: Frame) -> Frame:
    """Two copies of the outputs of one call."""
    half = frame["room"] // 2
    inputs = worker.inputs(frame)
    _occupy(worker)
    result = worker.run(inputs, worker.arrays.joined)
    first = worker.copied(result, {**frame, "room": half})
    time.sleep(frame["wait_s"])
    worker.arrays.synchronise()
    second = worker.copied(result, frame, half, LATER)
    return {"outputs": first + second}


def _occupy(worker: Any) -> None:
    """Keep the multiprocessors busy from elsewhere: what nobody waits for is then surely late.

    Copies have engines of their own and do not queue behind it; kernels do, whichever stream they
    are on, and a stream that is waited for is waited for.
    """
    if worker.arrays.device == "cpu":
        return
    torch = worker.arrays.torch
    if "hog" not in _kept:
        _kept["hog"] = torch.ones((HOG, HOG), device="cuda"), torch.cuda.Stream()
        _kept["product"] = torch.empty_like(_kept["hog"][0])
    matrix, elsewhere = _kept["hog"]
    torch.cuda.synchronize()
    with torch.cuda.stream(elsewhere):
        torch.mm(matrix, matrix, out=_kept["product"])


def stream(worker: Any, frame: Frame) -> Frame:
    """One call on a side stream while the default stream is busy with something else."""
    torch = worker.arrays.torch
    side = _kept.setdefault("side", torch.cuda.Stream())
    inputs = worker.inputs(frame)
    worker.arrays.synchronise()
    if frame["busy_ms"]:
        torch.cuda._sleep(CYCLES_A_MS * frame["busy_ms"])
    with torch.cuda.stream(side):
        result = worker.run(inputs, side.synchronize)
        leaves = worker.copied(result, frame)
    worker.arrays.synchronise()
    return {"outputs": leaves}


def context(worker: Any, _frame: Frame) -> Frame:
    """Whether the thread's CUDA context, by the driver's handle, is the one of the first look."""
    if "context" not in _kept:
        worker.arrays.synchronise()  # torch makes the context when it is first needed
    now = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(now))
    first = _kept.setdefault("context", now.value)
    return {"same": first == now.value}
