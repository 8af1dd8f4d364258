"""The worker's side of paced calls: one call at a time, each when the referee's page says so.

The page is host memory that both processes map, as 64-bit words. The referee writes the first part,
this side the second; neither believes the other beyond that (``graders/pacing/chain.py`` says what
the referee makes of it). A number that goes up by one is written last and opens a line::

    GO    number, command, key (2), where each input begins (elements of its pool, 16), place,
          which of the states that were set up
    DONE  number, digest (2)          written by the digest kernel itself on a GPU
    READY number                      waiting for that command

Commands: ``CALL`` runs the submission on the inputs and commits to its outputs by a digest with
this call's key; ``KEEP`` copies the outputs of the last call to ``place`` in the memory that the
referee kept for them; ``HERE`` does nothing but show that this side runs; ``END`` answers the
frame. An exception ends the pace as an answer to it.
"""

import gc
import mmap
import sys
from typing import Any

GO, DONE, READY = 0, 64, 128  # first word of each line
COMMAND, KEY, BEGIN, PLACE, STATE = 1, 2, 4, 20, 21
MOST_INPUTS = 14  # words for 16; of the wire's 16 descriptors two are for page and slots
CALL, KEEP, END, HERE = 1, 2, 3, 4
PAGE_BYTES = 4096

Frame = dict[str, Any]


def aligned(size: int) -> int:
    """Bytes that an output takes in the memory of kept outputs."""
    return -(-size // 256) * 256


class OnDevice:
    """Pools, page and outputs in the memory of a GPU."""

    def __init__(self, worker: Any, frame: Frame, page: mmap.mmap) -> None:
        self._memory = worker.beside("device_memory")
        self._torch = torch = worker.arrays.torch
        self._stream = torch._C._cuda_getCurrentRawStream
        torch.cuda.current_stream().synchronize()  # this thread has the device's context now
        self._driver = self._memory.Driver()
        self._page = page
        self.digest: Any = None
        if "ptx" in frame:
            done = self._driver.page_locked(page) + 8 * DONE
            self.digest = worker.beside("digests").DeviceDigest(self._driver, frame["ptx"], done)
        self._blocks: list[Any] = []

    def pool(self, fd: int, size: int, dtype: str) -> Any:
        """All of a pool as one flat tensor."""
        block = self._driver.imported(fd, size)
        self._blocks.append(block)
        flat = self._torch.as_tensor(block, device="cuda")[:size]
        return flat.view(getattr(self._torch, dtype))

    def window(self, pool: Any, shape: list[int], strides: list[int], begin: int) -> Any:
        """One input."""
        return pool.as_strided(shape, strides, begin)

    def expected(self, dtype: str, shape: list[int]) -> tuple[Any, Any]:
        """What `checked` compares with, made once."""
        return getattr(self._torch, dtype), self._torch.Size(shape)

    def checked(self, name: str, value: Any, dtype: Any, shape: Any) -> Any:
        """An output as a contiguous tensor of what is asked for. Raises TypeError."""
        if type(value) is not self._torch.Tensor:
            value = self._torch.as_tensor(value).as_subclass(self._torch.Tensor)
        if value.dtype is not dtype or value.shape != shape or not value.is_cuda:
            told = f"{value.dtype} {list(value.shape)} on {value.device}"
            raise TypeError(f"output {name!r} is {told} where {dtype} {list(shape)} is asked for")
        return value if value.is_contiguous() else value.contiguous()

    def commit(self, values: list[Any], key: tuple[int, int], number: int) -> None:
        """Launch the digest behind the call, on the stream that is current."""
        arrays = [(value.data_ptr(), value.nbytes) for value in values]
        self.digest(arrays, key, number, self._stream(0))

    def copy(self, values: list[Any], slots: Any, place: int) -> None:
        """Copy outputs to the referee's memory and wait for it."""
        self._torch.cuda.synchronize()
        for value in values:
            target = slots[place : place + value.nbytes]
            target.copy_(value.view(-1).view(self._torch.uint8))
            place += aligned(value.nbytes)
        self._torch.cuda.synchronize()

    def close(self) -> None:
        """Unmap all."""
        self._torch.cuda.synchronize()
        for block in self._blocks:
            block.release()
        if self.digest is not None:
            self._driver.release_page(self._page)


class OnHost:
    """The same in host memory, for CPU workers."""

    def __init__(self, worker: Any, _frame: Frame, page: mmap.mmap) -> None:
        self._numpy = sys.modules["numpy"]
        self._words = memoryview(page).cast("Q")
        self._fetch = worker.arrays.fetch
        self._digest = worker.beside("digests").host_digest

    def pool(self, fd: int, size: int, dtype: str) -> Any:
        """All of a pool as one flat array."""
        mapped = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        return self._numpy.frombuffer(mapped, dtype)

    def window(self, pool: Any, shape: list[int], strides: list[int], begin: int) -> Any:
        """One input."""
        steps = [stride * pool.itemsize for stride in strides]
        return self._numpy.lib.stride_tricks.as_strided(pool[begin:], shape, steps)

    def expected(self, dtype: str, shape: list[int]) -> tuple[Any, Any]:
        """What `checked` compares with."""
        return dtype, tuple(shape)

    def checked(self, name: str, value: Any, dtype: Any, shape: Any) -> Any:
        """An output as a contiguous array of what is asked for. Raises TypeError."""
        value = self._fetch(value)
        if str(value.dtype) != dtype or value.shape != shape:
            told = f"{value.dtype} {list(value.shape)}"
            raise TypeError(f"output {name!r} is {told} where {dtype} {list(shape)} is asked for")
        return value

    def commit(self, values: list[Any], key: tuple[int, int], number: int) -> None:
        """Write the digest."""
        self._words[DONE + 1], self._words[DONE + 2] = self._digest(values, key)
        self._words[DONE] = number

    def copy(self, values: list[Any], slots: Any, place: int) -> None:
        """Copy outputs to the referee's memory."""
        for value in values:
            slots[place : place + value.nbytes] = value.reshape(-1).view("uint8")
            place += aligned(value.nbytes)

    def close(self) -> None:
        """Mappings end with the last array over them."""


class Pace:
    """One chain of paced calls of the submission."""

    def __init__(self, worker: Any, frame: Frame) -> None:
        page, *pools, slots = worker.fds
        self._worker = worker
        self._mapped = mmap.mmap(page, PAGE_BYTES)
        self._page = memoryview(self._mapped).cast("Q")
        self._side: Any = (OnDevice if worker.arrays.device == "cuda" else OnHost)(
            worker, frame, self._mapped
        )
        self._inputs = Windows(self._side, frame, pools)
        self._outputs = [
            (leaf["name"], *self._side.expected(leaf["dtype"], leaf["shape"]))
            for leaf in frame["outputs"]
        ]
        self._slots = self._side.pool(slots, frame["slots"], "uint8")
        self._values: list[Any] = []

    def serve(self) -> None:
        """Follow the page until it says END."""
        page, number = self._page, 0
        while True:
            number += 1
            page[READY] = number
            while page[GO] != number:
                pass
            if page[COMMAND] == CALL:
                self._call(number)
            elif page[COMMAND] == KEEP:
                self._side.copy(self._values, self._slots, page[PLACE])
                page[DONE] = number
            elif page[COMMAND] == END:
                return

    def _call(self, number: int) -> None:
        worker, page = self._worker, self._page
        inputs = self._inputs(page[BEGIN:PLACE])
        result = worker.adapter.run(worker.entries, worker.states[page[STATE]], inputs)
        checked, leaf = self._side.checked, worker.leaf
        plain = type(result) is dict  # most are, and paths take a microsecond
        self._values = [
            checked(name, result[name] if plain and name in result else leaf(result, name), *form)
            for name, *form in self._outputs
        ]
        self._side.commit(self._values, (page[KEY], page[KEY + 1]), number)

    def close(self) -> None:
        """Unmap all."""
        self._values = []
        self._side.close()


class Windows:
    """Inputs by where they begin in their pools."""

    def __init__(self, side: Any, frame: Frame, fds: list[int]) -> None:
        self._side = side
        self._leaves = [
            (leaf["name"], side.pool(fd, leaf["size"], leaf["dtype"]), *_layout(leaf["shape"]))
            for leaf, fd in zip(frame["inputs"], fds, strict=True)
        ]

    def __call__(self, begins: Any) -> dict[str, Any]:
        """The inputs of one call."""
        window = self._side.window
        return {
            name: window(pool, shape, strides, begins[n])
            for n, (name, pool, shape, strides) in enumerate(self._leaves)
        }


def _layout(shape: list[int]) -> tuple[list[int], list[int]]:
    """A shape and its strides in elements, densely packed."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    return shape, strides


def pace(worker: Any, frame: Frame) -> Frame:
    """Serve one chain."""
    chain = Pace(worker, frame)
    gc.collect()
    gc.disable()  # its pauses are nobody's
    try:
        chain.serve()
    except BaseException as error:
        raise worker.beside("refusals").Refused("call", error) from error
    finally:
        gc.enable()
        chain.close()
    return {"ok": "pace"}


def events(worker: Any, frame: Frame) -> Frame:
    """Milliseconds of calls by this process's own CUDA events: a claim, as the boards measure.

    Each call is on an idle stream after ``flush`` bytes were written; or, with ``spin`` clock
    cycles, queued behind a kernel of that length, so that no launch latency is in the figure.
    """
    torch = worker.arrays.torch
    side = OnDevice(worker, {}, mmap.mmap(-1, PAGE_BYTES))
    inputs = Windows(side, frame, worker.fds)
    cold = torch.empty(frame["flush"], dtype=torch.uint8, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    try:
        for number, begins in enumerate(frame["begins"]):
            given, held = inputs(begins), worker.states[frame["states"][number]]
            cold.zero_()
            torch.cuda.synchronize()
            if frame["spin"]:
                torch.cuda._sleep(frame["spin"])
            start.record()
            worker.adapter.run(worker.entries, held, given)
            end.record()
            torch.cuda.synchronize()
            if number >= frame["warm_up"]:
                found.append(start.elapsed_time(end))
    except BaseException as error:
        raise worker.beside("refusals").Refused("call", error) from error
    finally:
        side.close()
    return {"ok": "events", "milliseconds": found}
