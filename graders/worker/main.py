"""The worker: calls one submission for the referee, with no authority over anything.

Copied, together with the files beside it and the task's ``adapter.py``, into a folder of its own
and run as ``python -I -S main.py <json>``; standard library and NumPy only (torch only when the
device is a GPU). It shares its process with the submission, so all that it says is a claim: the
referee trusts only lengths, times and bytes that it has read itself.

Memory: the input memfd is mapped shared and writable, so that a submission which changes its inputs
is seen by the referee. Outputs are copied into the output memfd before the answer is sent, which
is inside the referee's clock: an object that computes lazily does so there.
"""

import contextlib
import gc
import importlib.util
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

OPTIONS = json.loads(sys.argv[1])
sys.path[:0] = OPTIONS["site"]  # `-S`: nothing else is importable beside the standard library

import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up

Frame = dict[str, Any]
ALIGN = 64
EXTRAS = {"profile": "profiling", "probe": "probing", "pack": "caches"}
EXTRAS |= dict.fromkeys(("pace", "events"), "pacer")
"""Steps that live in files of their own, each a function ``op(worker, frame) -> frame``."""


def load(path: str, name: str) -> ModuleType:
    """Import one file under ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def beside(stem: str) -> ModuleType:
    """One of the files beside this one, imported once."""
    name = f"_referee_{stem}"
    return sys.modules.get(name) or load(os.path.join(HERE, f"{stem}.py"), name)  # noqa: PTH118


refusals = beside("refusals")
Refused = refusals.Refused


def make_caches(folder: str, packs: list[int]) -> None:
    """The folders that compilers are told of, with what an earlier worker built."""
    for path in os.environ.values():
        if path.startswith(f"{folder}/"):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
    for pack in packs:
        beside("caches").unpack(pack, folder)


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


class Worker:
    """Answers the referee's frames."""

    beside = staticmethod(beside)

    def __init__(self, ends: tuple[socket.socket, int], wire: ModuleType, kinds: ModuleType):
        self.questions, self.answers = ends
        self.wire, self.kinds = wire, kinds
        self.caches: str = OPTIONS["caches"]
        self.adapter: Any = None
        self.entries: Any = None
        self.state: Any = None
        self.states: list[Any] = []  # more than one only for paced calls
        self.raw: dict[str, str] = {}  # of inputs: what their bits are
        self.arrays: Any = kinds.HostArrays()
        self.outputs: tuple[str, ...] = ()
        self.written: dict[str, str] = {}  # output -> the input that holds it after the call
        self.fds: list[int] = []
        self.maps: tuple[mmap.mmap, mmap.mmap] | None = None
        self.views: dict[str, Any] = {}
        self.keys: dict[str, str] = {}  # of each input, that of its view

    def serve(self) -> None:
        """Answer until the process is killed."""
        self.wire.send_answer(self.answers, {"ok": "ready", "pid": os.getpid()})
        steps: dict[str, Callable[[Frame], Frame]] = {
            "build": self.build,
            "setup": self.setup,
            "call": self.call,
        }
        while True:
            frame, self.fds = self.wire.receive_question(self.questions)
            try:
                step = steps.get(frame["op"]) or self.step_beside(frame["op"])
                answer = step(frame)
            except Refused as refused:
                answer = refusals.describe(refused)
            except BaseException as error:  # noqa: BLE001 - no room for an input, or worse
                answer = refusals.describe(Refused("call", error))
            finally:
                self._close_all()
            self.wire.send_answer(self.answers, answer)

    def _close_all(self) -> None:
        for fd in self.fds:
            with contextlib.suppress(OSError):  # the submission may have closed it
                os.close(fd)

    def step_beside(self, op: str) -> Callable[[Frame], Frame]:
        """A step of one of the files beside this one, loaded when it is first asked for."""
        step: Callable[[Any, Frame], Frame] = getattr(beside(EXTRAS[op]), op)
        return lambda frame: step(self, frame)

    def build(self, frame: Frame) -> Frame:
        """Import the adapter and the submission, and resolve the entries."""
        self.outputs = tuple(frame["outputs"])
        self.written = dict(frame.get("written", {}))
        try:
            make_caches(self.caches, self.fds)
            if frame["device"] != "cpu":
                self.arrays = self.kinds.CudaArrays()
            elif frame.get("tensors"):
                self.arrays = self.kinds.TensorArrays()
            self.raw = frame.get("raw", {})
            self.adapter = beside("adapter")
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
        number = frame.get("state", 0)
        self.state = None
        self.states = self.states[:number]
        params = frame["params"]
        try:
            if "weights" in frame:
                params["weights"] = self._weights(frame)
            self.state = self.adapter.setup(self.entries, params)
            self.states.append(self.state)
            self.arrays.synchronise()
        except BaseException as error:
            raise Refused("setup", error) from error
        return {"ok": "setup"}

    def _weights(self, frame: Frame) -> dict[str, Any]:
        """Copies of the arrays of this setup, of their real dtypes."""
        if "block" in frame:
            found: dict[str, Any] = self.arrays.from_device(
                beside("device_memory"), self.fds[0], frame
            )
            return found
        held = mmap.mmap(self.fds[0], os.fstat(self.fds[0]).st_size)
        return {
            leaf["name"]: self.arrays.own(strided(held, leaf), leaf["raw"])
            for leaf in frame["weights"]
        }

    def call(self, frame: Frame) -> Frame:
        """Run one call and copy its outputs. Without descriptors the last mapping is used again."""
        inputs = self.inputs(frame)
        if frame.get("dirty") is not None:
            self.arrays.dirty(frame.get("sizes", [frame["room"]]), frame["dirty"])
        result = self.run(inputs, self.arrays.synchronise)
        leaves = self.copied(result, frame)
        if frame.get("scribble"):
            self._scribble(result)
        if frame.get("watch"):
            self.arrays.write_back()
        return {"ok": "call", "n": frame["n"], "outputs": leaves}

    def inputs(self, frame: Frame) -> dict[str, Any]:
        """The inputs of a call: the same objects again for the same leaves of the same mapping."""
        if self.fds:
            self.maps = (_mapped(self.fds[0]), _mapped(self.fds[1]))
        if self.fds or frame.get("recycle"):
            self.views = {}
            self.arrays.forget()
        if frame.get("recycle"):
            gc.collect()  # so that objects and addresses are handed out again
        return {leaf["name"]: self._input(leaf) for leaf in frame["inputs"]}

    def _input(self, leaf: Frame) -> Any:
        key = json.dumps(leaf)
        if key not in self.views:
            assert self.maps is not None
            self.views[key] = strided(self.maps[0], leaf)
        self.keys[leaf["name"]] = key
        return self.arrays.put(self.views[key], key, self.raw.get(leaf["name"], ""))

    def run(self, inputs: dict[str, Any], wait: Callable[[], None]) -> Any:
        """One call of the submission, and what the caller waits for then."""
        try:
            result = self.adapter.run(self.entries, self.state, inputs)
            wait()
        except BaseException as error:
            raise Refused("call", error) from error
        return result

    def leaf(self, result: Any, name: str) -> Any:
        """An output by its path, or the input that the task declares to be that output."""
        if name in self.written:
            return self.arrays.after(self.keys[self.written[name]])
        alone = len(self.outputs) - len(self.written) == 1
        return self.kinds.leaf(result, name, alone=alone)

    def copied(self, result: Any, frame: Frame, begin: int = 0, under: str = "") -> list[Frame]:
        """Copy the outputs behind ``begin`` bytes, each called ``under`` and its path."""
        try:
            names = [*self.outputs]
            if frame.get("extras"):
                names += [name for name in self.kinds.paths(result) if name not in names]
            return self._copy_out(result, names, frame["room"], begin, under)
        except BaseException as error:
            raise Refused("output", error) from error

    def _copy_out(
        self, result: Any, names: list[str], room: int, offset: int, under: str
    ) -> list[Frame]:
        assert self.maps is not None
        leaves = []
        for name in names:
            value = self.leaf(result, name)
            host = self.arrays.fetch(value)
            if str(host.dtype) not in self.wire.DTYPES:
                raise TypeError(f"output {name!r} holds {host.dtype}, which is no plain number")
            if offset + host.nbytes > room:
                told = f"{host.dtype} {list(host.shape)}"
                raise OverflowError(f"output {name!r} is {told}: beyond the room of {room} bytes")
            target = np.ndarray(host.shape, host.dtype, buffer=self.maps[1], offset=offset)
            target[...] = host
            placed = {"dtype": str(host.dtype), "shape": list(host.shape), "offset": offset}
            leaves.append({"name": under + name, **placed, **self._claims(name, value)})
            offset += -(-host.nbytes // ALIGN) * ALIGN
        return leaves

    def _claims(self, name: str, value: Any) -> Frame:
        """What only this side can see of an output."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        aliases = name not in self.written and self.arrays.aliases(value)
        return {"type": kind, "holds": str(getattr(value, "dtype", "")), "aliases": aliases}

    def _scribble(self, result: Any) -> None:
        """Overwrite what the submission returned: it may not keep it as its own truth."""
        for name in self.outputs:
            try:
                self.leaf(result, name)[...] = 77
            except (TypeError, ValueError, IndexError, RuntimeError):
                continue  # read-only or scalar outputs cannot be kept and overwritten either


def _mapped(fd: int) -> mmap.mmap:
    """The whole memfd, pages in place: first-touch faults are no part of a kernel's time."""
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def main() -> None:
    """Serve one submission."""
    wire, kinds = beside("wire"), beside("arrays")
    for fd in (OPTIONS["questions"], OPTIONS["answers"]):
        os.set_inheritable(fd, False)  # compilers that the submission starts get neither
    ends = socket.socket(fileno=OPTIONS["questions"]), OPTIONS["answers"]
    Worker(ends, wire, kinds).serve()


if __name__ == "__main__":
    main()
