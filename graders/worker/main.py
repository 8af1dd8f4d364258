"""The worker: calls one submission for the referee, with no authority over anything.

Copied, together with the files beside it and the task's ``adapter.py``, into a folder of its own
and run as ``python -I -S main.py <json>``; standard library and NumPy only (torch only when the
device is a GPU). It shares its process with the submission, so all that it says is a claim: the
referee trusts only lengths, times and bytes that it has read itself.

Memory: the input memfd is mapped shared and writable, so that a submission which changes its inputs
is seen by the referee. Outputs are copied into the output memfd before the answer is sent, which
is inside the referee's clock: an object that computes lazily does so there.
"""

import importlib
import importlib.util
import json
import mmap
import os
import socket
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

OPTIONS = json.loads(sys.argv[1])
sys.path[:0] = OPTIONS["site"]  # `-S`: nothing else is importable beside the standard library

import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up

Frame = dict[str, Any]
ALIGN = 64
EXTRAS = {"pace": "pacer", "events": "pacer", "profile": "profiling", "probe": "probing"}
"""Steps that live in files of their own, each a function ``op(worker, frame) -> frame``."""


class Refused(Exception):
    """A step that failed in the submission: ``kind`` is a word of the wire."""

    def __init__(self, kind: str, error: BaseException) -> None:
        super().__init__(kind)  # `str(error)` is the submission's code
        self.kind, self.error = kind, error


def load(path: str, name: str) -> ModuleType:
    """Import one file under ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def resolve(module: ModuleType, dotted: str) -> Any:
    """``module.a.b`` for ``"a.b"``."""
    found: Any = module
    for part in dotted.split("."):
        found = getattr(found, part)
    return found


def strided(buffer: Any, leaf: Frame) -> Any:
    """The array that a leaf describes, over ``buffer``."""
    shape, dtype = tuple(leaf["shape"]), leaf["dtype"]
    return np.ndarray(shape, dtype, buffer=buffer, offset=leaf["offset"], strides=leaf["strides"])


class HostArrays:
    """CPU tasks: inputs are views of the mapping, outputs anything NumPy can read."""

    def put(self, array: Any) -> Any:
        """The input as the submission gets it."""
        return array

    def fetch(self, value: Any) -> Any:
        """The output as a host array."""
        return np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))

    def synchronise(self) -> None:
        """Nothing runs asynchronously."""


class CudaArrays:
    """GPU tasks: the same arrays as CUDA tensors."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")

    def put(self, array: Any) -> Any:
        """Copy one input to the device; strides are kept."""
        torch = self.torch
        host = torch.from_numpy(array)
        held = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device="cuda")
        return held.copy_(host)

    def fetch(self, value: Any) -> Any:
        """Copy one output back; bfloat16 as its raw bits."""
        torch = self.torch
        host = torch.as_tensor(value).detach().contiguous().cpu()
        return (host.view(torch.uint16) if host.dtype == torch.bfloat16 else host).numpy()

    def synchronise(self) -> None:
        """Wait for the device."""
        self.torch.cuda.synchronize()


class Worker:
    """Answers the referee's frames."""

    def __init__(self, sock: socket.socket, wire: ModuleType) -> None:
        self.sock, self.wire = sock, wire
        self.adapter: Any = None
        self.entries: Any = None
        self.state: Any = None
        self.arrays: Any = HostArrays()
        self.outputs: tuple[str, ...] = ()
        self.fds: list[int] = []
        self.maps: tuple[mmap.mmap, mmap.mmap] | None = None
        self.views: dict[str, Any] = {}

    def serve(self) -> None:
        """Answer until the process is killed."""
        self.wire.send_frame(self.sock, {"ok": "ready", "pid": os.getpid()})
        steps: dict[str, Callable[[Frame], Frame]] = {
            "build": self.build,
            "setup": self.setup,
            "call": self.call,
        }
        while True:
            frame, self.fds = self.wire.receive_frame(self.sock)
            try:
                step = steps.get(frame["op"]) or self.step_beside(frame["op"])
                answer = step(frame)
            except Refused as refused:
                answer = describe(refused)
            finally:
                for fd in self.fds:
                    os.close(fd)
            self.wire.send_frame(self.sock, answer)

    def step_beside(self, op: str) -> Callable[[Frame], Frame]:
        """A step of one of the files beside this one, loaded when it is first asked for."""
        name = f"_referee_{EXTRAS[op]}"
        module = sys.modules.get(name) or load(os.path.join(HERE, f"{EXTRAS[op]}.py"), name)  # noqa: PTH118
        step: Callable[[Any, Frame], Frame] = getattr(module, op)
        return lambda frame: step(self, frame)

    def build(self, frame: Frame) -> Frame:
        """Import the adapter and the submission, and resolve the entries."""
        self.outputs = tuple(frame["outputs"])
        try:
            if frame["device"] != "cpu":
                self.arrays = CudaArrays()
            self.adapter = load(os.path.join(HERE, "adapter.py"), "_referee_adapter")  # noqa: PTH118
            found: dict[str, Any] = {}
            if frame["file"]:
                sys.path.insert(0, frame["folder"])
                stem = os.path.basename(frame["file"]).removesuffix(".py")  # noqa: PTH119
                module = load(frame["file"], stem)
                found = {name: resolve(module, as_) for name, as_ in frame["names"].items()}
            absent = dict.fromkeys(frame["absent"])
            self.entries = SimpleNamespace(**absent, **found)
        except BaseException as error:
            raise Refused("import", error) from error
        return {"ok": "build"}

    def setup(self, frame: Frame) -> Frame:
        """Make the state of a new sequence of calls."""
        self.state = None
        try:
            self.state = self.adapter.setup(self.entries, frame["params"])
            self.arrays.synchronise()
        except BaseException as error:
            raise Refused("setup", error) from error
        return {"ok": "setup"}

    def call(self, frame: Frame) -> Frame:
        """Run one call and copy its outputs. Without descriptors the last mapping is used again."""
        if self.fds:
            self.views, self.maps = {}, (_mapped(self.fds[0]), _mapped(self.fds[1]))
        assert self.maps is not None
        inputs = {leaf["name"]: self._input(leaf) for leaf in frame["inputs"]}
        if frame.get("dirty") is not None:
            _dirty_the_heap(frame["room"], frame["dirty"])
        try:
            result = self.adapter.run(self.entries, self.state, inputs)
            self.arrays.synchronise()
        except BaseException as error:
            raise Refused("call", error) from error
        try:
            names = [*self.outputs]
            if frame.get("extras"):
                names += [name for name in result if name not in names]
            leaves = self._copy_out(result, names, frame["room"])
        except BaseException as error:
            raise Refused("output", error) from error
        if frame.get("scribble"):
            _scribble(result)
        return {"ok": "call", "n": frame["n"], "outputs": leaves}

    def _input(self, leaf: Frame) -> Any:
        """The same object again for the same leaf of the same mapping."""
        key = json.dumps(leaf)
        if key not in self.views:
            assert self.maps is not None
            self.views[key] = strided(self.maps[0], leaf)
        return self.arrays.put(self.views[key])

    def _copy_out(self, result: Any, names: list[str], room: int) -> list[Frame]:
        assert self.maps is not None
        leaves, offset = [], 0
        for name in names:
            value = result[name]
            host = self.arrays.fetch(value)
            if str(host.dtype) not in self.wire.DTYPES:
                raise TypeError(f"output {name!r} holds {host.dtype}, which is no plain number")
            if offset + host.nbytes > room:
                told = f"{host.dtype} {list(host.shape)}"
                raise OverflowError(f"output {name!r} is {told}: beyond the room of {room} bytes")
            target = np.ndarray(host.shape, host.dtype, buffer=self.maps[1], offset=offset)
            target[...] = host
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            leaves.append(
                {
                    "name": name,
                    "dtype": str(host.dtype),
                    "shape": list(host.shape),
                    "offset": offset,
                }
                | {"type": kind, "aliases": self._aliases(host)}
            )
            offset += -(-host.nbytes // ALIGN) * ALIGN
        return leaves

    def _aliases(self, host: Any) -> bool:
        return any(np.may_share_memory(host, view) for view in self.views.values())


def _mapped(fd: int) -> mmap.mmap:
    """The whole memfd, pages in place: first-touch faults are no part of a kernel's time."""
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _dirty_the_heap(size: int, byte: int) -> None:
    """Leave blocks of ``byte`` on the heap for a careless ``np.empty`` to find."""
    blocks = [np.full(max(size >> shift, 1), byte, np.uint8) for shift in range(4)]
    del blocks


def _scribble(result: Any) -> None:
    """Overwrite what the submission returned: it may not keep it as its own truth."""
    for value in result.values():
        try:
            value[...] = 77
        except (TypeError, ValueError, IndexError):
            continue  # read-only or scalar outputs cannot be kept and overwritten either


def describe(refused: Refused) -> Frame:
    """The error frame of a failed step."""
    error = refused.error
    text = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in where]  # noqa: PTH119
    return {
        "error": refused.kind,
        "bases": [base.__name__ for base in type(error).__mro__],
        "text": text[-2000:],
        "where": places,
    }


def main() -> None:
    """Serve one submission."""
    wire = load(os.path.join(HERE, "wire.py"), "_referee_wire")  # noqa: PTH118
    Worker(socket.socket(fileno=OPTIONS["fd"]), wire).serve()


if __name__ == "__main__":
    main()
