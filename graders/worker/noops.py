"""Take the submission's own kernels out, from inside its process: what is right without them is
no work of theirs.

Armed before the submission is imported, and asked afterwards what it has taken out:

- Triton: a launch compiles, and launches nothing (autotuners time nothing either);
- CUDA C++ in strings (``load_inline``, ``torch.cuda._compile_kernel``), in files (``load``, and
  whatever a started compiler is given): the bodies of kernels are taken out before it is compiled.

Files of the submission itself lie where nobody here can write: the referee has emptied them before
it started this worker. Kernels that come in another way (a library that was built elsewhere, PTX)
are not reached, and are not in the report: then nobody concludes anything.

It is a claim like all else in here. A submission can look for these changes, but source that does
so is a finding by itself.
"""

import contextlib
import functools
import importlib
import inspect
import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

Frame = dict[str, Any]
MOST_NAMES = 200
MOST_NAME = 300  # characters
TORCHS_OWN = "torch"
_COMPILED = (".cu", ".cuh")
taken: Counter[str] = Counter()
"""Kernel -> launches that were left out, or definitions that were emptied."""
scanner: list[Any] = []


def arm(cuda_text: Any) -> Frame:
    """Change what builds and launches kernels, as far as it is installed here.

    ``cuda_text`` is the module of that name: a file of the worker imports no other by itself.
    """
    scanner.append(cuda_text)
    disarm_compilers()
    steps: dict[str, Callable[[Any], None]] = {
        "triton.runtime.jit": disarm_triton,
        "triton.runtime.autotuner": disarm_autotuner,
        "triton.runtime.interpreter": disarm_interpreter,
        "triton.compiler.compiler": disarm_compiled,
        "torch.utils.cpp_extension": disarm_extensions,
        "torch.cuda._utils": disarm_nvrtc,
    }
    armed = []
    for name, step in steps.items():
        try:
            step(importlib.import_module(name))
        except (ImportError, AttributeError, OSError):
            continue  # not installed, or a version without it
        armed.append(name)
    return {"armed": armed}


def report() -> Frame:
    """What was taken out so far."""
    most = taken.most_common(MOST_NAMES)
    return {"taken": {name[:MOST_NAME]: count for name, count in most}}


def disarm_triton(jit: Any) -> None:
    """A launch of a jitted function becomes a warm-up: it compiles only."""
    launch = jit.JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        ours = str(self.fn.__module__).partition(".")[0] == TORCHS_OWN
        if not warmup and not ours:
            taken[self.fn.__name__] += 1
        return launch(self, *args, grid=grid, warmup=warmup or not ours, **kwargs)

    jit.JITFunction.run = run


def disarm_autotuner(autotuner: Any) -> None:
    """Each configuration is tried once and takes no time."""
    bench = autotuner.Autotuner._bench

    def without_times(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["do_bench"] = _once
        return bench(self, *args, **kwargs)

    autotuner.Autotuner._bench = without_times


def disarm_interpreter(interpreter: Any) -> None:
    """The same for kernels that run in Triton's interpreter."""

    def run(self: Any, *_: Any, warmup: bool, **__: Any) -> None:
        if not warmup:
            taken[self.fn.__name__] += 1

    interpreter.InterpretedFunction.run = run


def disarm_compiled(compiler: Any) -> None:
    """``kernel[grid](...)`` of a kernel that was compiled ahead."""

    def item(self: Any, _grid: Any) -> Callable[..., None]:
        def runner(*_: Any, **__: Any) -> None:
            taken[str(self.metadata.name)] += 1

        return runner

    compiler.CompiledKernel.__getitem__ = item


def disarm_extensions(extensions: Any) -> None:
    """Sources of extensions, as text and as files."""
    for name in ("load_inline", "load"):
        setattr(extensions, name, _emptying(getattr(extensions, name)))


def disarm_nvrtc(utils: Any) -> None:
    """Sources that torch hands to NVRTC."""
    utils._nvrtc_compile = _emptying(utils._nvrtc_compile)


def disarm_compilers() -> None:
    """CUDA files among the arguments of a process that is started."""
    begin = subprocess.Popen.__init__

    @functools.wraps(begin)
    def started(self: Any, args: Any, *more: Any, **kwargs: Any) -> None:
        for word in _words(args):
            if word.endswith(_COMPILED):
                empty_file(os.path.join(kwargs.get("cwd") or "", word))  # noqa: PTH118
        begin(self, args, *more, **kwargs)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def empty_text(text: str) -> str:
    """The text without the bodies of its kernels, which are noted."""
    found, names = scanner[-1].emptied(text)
    taken.update(names)
    return str(found)


def empty_file(path: str) -> None:
    """The same of a file; one that cannot be changed counts where the referee has emptied it."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            text = file.read()
        found, names = scanner[-1].emptied(text)
        if found != text:
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
                file.write(found)
    except OSError:
        return
    taken.update(names)


def _emptying(build: Callable[..., Any]) -> Callable[..., Any]:
    """``build`` with each argument that holds source, or names files of it, emptied."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def emptied(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        for name in ("cuda_sources", "cpp_sources", "kernel_source"):
            value = given.arguments.get(name)
            if isinstance(value, str | bytes):
                given.arguments[name] = empty_text(_text(value))
            elif isinstance(value, list | tuple):
                given.arguments[name] = [empty_text(_text(part)) for part in value]
        files = given.arguments.get("sources", ())
        for path in [files] if isinstance(files, str | os.PathLike) else files:
            empty_file(os.fspath(path))
        return build(*given.args, **given.kwargs)

    return emptied


def _once(call: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
    call()
    return [0.0, 0.0, 0.0]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _words(args: Any) -> list[str]:
    if isinstance(args, str):
        with contextlib.suppress(ValueError):  # quotes that do not match
            return shlex.split(args)
    listed = args if isinstance(args, list | tuple) else [args]
    return [word for word in listed if isinstance(word, str)]
