"""What a kernel is, by the name that a profiler gives it and by the submission's own source.

The first rule that holds decides:

1. Copies and memsets are ``memory``.
2. Names that only others' code has, whatever a submission defines: kernels in the namespaces of
   torch (``at::native::...``) are ``eager``, and so is what inductor generates
   (``triton_poi_fused_...``: torch.compile wrote it, not the submission); cuBLAS (``nvjet_...``,
   ``sm90_xmma_...``, ``cutlass_80_...``), cuDNN, CUB, Thrust, NCCL and torch's attention are
   ``library``. CUB and Thrust over torch's own functors are ``eager``.
3. Names that the submission's source defines: ``__global__`` functions found by a tokenizer in
   its strings and C++ files (``cuda_raw``; ``cutlass`` where that text includes its headers),
   ``.entry`` of PTX (``ptx``), functions decorated by ``triton.jit`` (``triton``; gluon counts too)
   or ``cutlass.cute.kernel`` (``cutlass``). A kernel template of CUTLASS itself is ``cutlass`` when
   the source includes its headers. Text in comments proves nothing.
4. Names that torch uses but an author may use too (``softmax_warp_forward``): ``eager``.
5. All else is ``library``, and not sure: nobody knows whose it is (a name that was put together at
   run time, or a library that came along).

A kernel that is defined but never runs is in no profile, so decoys by source alone do not count;
one that runs for show is for ``graders.decoys``.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from graders.sources import SourceFile
from graders.worker.cuda_text import HOLE, kernels

Kind = Literal["cuda_raw", "ptx", "cutlass", "triton", "library", "eager", "memory"]
AUTHORED: tuple[Kind, ...] = ("cuda_raw", "ptx", "cutlass", "triton")

_TORCH = re.compile(
    r"(?:at|c10|torch|caffe2|at_cuda_detail)::|triton_tem_"
    r"|triton_(?:poi|per|red|for|foreach|spl|mix|unk|tem)_fused"
)
_GENERIC = re.compile(r"(?:cub|thrust|cuda_cub)::")
_OVER_TORCH = re.compile(
    r"\bat::native\b|\bat_cuda_detail\b|\bc10::|\d(?:at6native|at_cuda_detail)"
)
_LIBRARY = re.compile(
    r"cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|cask|nccl(?:Dev)?Kernel|magma_"
    r"|pytorch_flash::|PyTorchMemEffAttention::|fmha_cutlass[FB]|internal::gemvx"
    r"|nvjet_|sm\d{2,3}_xmma_|cutlass_(?:\d{2,3}|_5x_cudnn)_|implicit_convolve_"
    r"|(?:maxwell|volta|turing|ampere)_(?:\w*_)?[sdhciz]\d*(?:gemm|cudnn)_\w*\d+x\d+"
    r"|gemv2[TN]_kernel|gemvNSP_kernel|gemmSN_|splitKreduce_kernel"
)
_LIBRARY_WITHIN = re.compile(r"\bcublas|Kernel2?<cutlass_\d|Kernel2?I\d+cutlass_\d|_5x_cudnn_")
_CUTLASS = re.compile(r"cutlass::(?:device_kernel|Kernel2?)\Z")
_OF_TORCH_TOO = re.compile(
    r"(?:softmax_warp_(?:for|back)ward|cunn_SoftMax\w*|(?:\w+_)?elementwise_kernel\w*|reduce_kernel"
    r"|indexSelect\w*|triton_(?:mm|bmm|flex_attention\w*|convolution\w*))\Z"
)
_CUTLASS_HEADERS = re.compile(r"#\s*include\s*[<\"](?:cutlass|cute)/")
_HOLES = re.compile(r"%[sd]|(?<=\w)\{\w*\}|\{\w+\}(?=\w)|\$\{?\w+\}?")
MOST_OPEN = 100  # names with holes that are looked at
MOST_HOLES = 3  # of a name; more of them match anything, slowly
_MAY_HOLD = ("__global__", ".entry", "cutlass/", "cute/")


@dataclass(frozen=True)
class Told:
    """What a kernel is, and whether its name leaves no doubt."""

    kind: Kind
    sure: bool = True


@dataclass(frozen=True)
class Authored:
    """The kernels that a submission's source defines. ``*`` in a name stands for any text."""

    names: Mapping[str, Kind]
    has_cutlass: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """Languages in which it defines kernels."""
        return frozenset(self.names.values()) | ({"cutlass"} if self.has_cutlass else set())

    def kind_of(self, name: str) -> Kind | None:
        """By the unqualified name of a kernel."""
        if name in self.names:
            return self.names[name]
        matching = (known for known in self._open_names if _matches(known, name))
        return next((self.names[known] for known in matching), None)

    @cached_property
    def _open_names(self) -> list[str]:
        return [known for known in self.names if "*" in known][:MOST_OPEN]


def authored_of(files: Iterable[SourceFile], native: Iterable[str] = ()) -> Authored:
    """The kernels of an import closure and of the C++, CUDA and PTX texts beside it."""
    names: dict[str, Kind] = {}
    texts = [*native]
    for file in files:
        names |= dict(_jitted(file))
        texts += _texts(file)
    has_cutlass = False
    for text in dict.fromkeys(texts):
        with_cutlass = _CUTLASS_HEADERS.search(text) is not None
        has_cutlass |= with_cutlass
        for kernel in kernels(text):
            kind: Kind = "ptx" if kernel.is_ptx else "cutlass" if with_cutlass else "cuda_raw"
            names.setdefault(unqualified(kernel.name), kind)
    return Authored(names, has_cutlass)


def classify(name: str, what: str, authored: Authored) -> Told:
    """The kind of a line of a profile. ``what`` is ``kernel``, ``memcpy`` or ``memset``."""
    if what != "kernel":
        return Told("memory")
    if others := _of_others(qualified(name), name, authored):
        return Told(others)
    if kind := authored.kind_of(unqualified(name)):
        return Told(kind)
    if _OF_TORCH_TOO.match(unqualified(name)):
        return Told("eager")
    return Told("library", sure=False)


def _of_others(path: str, name: str, authored: Authored) -> Kind | None:
    """The kind of a name that no author can claim."""
    if _TORCH.match(path):
        return "eager"
    if _GENERIC.match(path):
        return "eager" if _OVER_TORCH.search(name) else "library"
    if _LIBRARY.match(path) or _LIBRARY_WITHIN.search(name):
        return "library"
    if _CUTLASS.match(path):
        return "cutlass" if authored.has_cutlass and "at::" not in name else "library"
    return None


def unqualified(name: str) -> str:
    """The bare name of a kernel: no namespace, no template arguments."""
    return qualified(name).rpartition("::")[2]


def qualified(name: str) -> str:
    """``at::native::reduce_kernel`` of a demangled or mangled name, arguments left out."""
    if name.startswith("_Z"):
        return _demangled(name)
    outside, depth = [], 0
    for part in re.split(r"([<>])", name.replace("(anonymous namespace)::", "")):
        depth += (part == "<") - (part == ">")
        if depth == 0 and part != ">":
            outside.append(part)
    words = "".join(outside).partition("(")[0].split()
    return words[-1] if words else ""


def _demangled(name: str) -> str:
    """The path of an Itanium-mangled name, up to its first template arguments."""
    rest, parts = re.sub(r"\A_ZN?[rVK]*L?", "", name), list[str]()
    while match := re.match(r"L?(\d{1,4})", rest):
        end = match.end() + int(match[1])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
        if not name.startswith("_ZN"):
            break
    named = [part for part in parts if not part.startswith(("_GLOBAL__N", "_INTERNAL_"))]
    return "::".join(named)


def _matches(known: str, name: str) -> bool:
    pattern = r"\w*".join(map(re.escape, known.split("*")))
    return known.count("*") <= MOST_HOLES and re.fullmatch(pattern, name) is not None


def _texts(file: SourceFile) -> Iterator[str]:
    """Strings of a file that may hold kernels; what is put in at run time is a hole."""
    waiting: list[ast.AST] = [file.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            text, inner = _folded(node)
            waiting += inner
            if any(word in text for word in _MAY_HOLD):
                yield text
        else:
            waiting += ast.iter_child_nodes(node)


def _folded(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The text of a string expression, and the expressions whose values are not known."""
    waiting, pieces, unknown = [node], list[str](), list[ast.expr]()
    while waiting:
        match waiting.pop():
            case ast.Constant(value=value):
                pieces.append(_HOLES.sub(HOLE, value) if isinstance(value, str) else HOLE)
            case ast.JoinedStr(values=values):
                waiting += reversed(values)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                waiting += [right, left]
            case ast.BinOp(left=left, right=right):
                waiting.append(left)
                unknown.append(right)
            case ast.FormattedValue(value=inner):
                pieces.append(HOLE)
                unknown.append(inner)
            case other:
                pieces.append(HOLE)
                unknown += [n for n in ast.iter_child_nodes(other) if isinstance(n, ast.expr)]
    return "".join(pieces).replace(f"{HOLE}__global__", " __global__"), unknown


def _jitted(file: SourceFile) -> Iterator[tuple[str, Kind]]:
    """Functions that Triton or the CuTe DSL compiles, however they are told to."""
    aliases = _jit_aliases(file)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = isinstance(decorator, ast.Call)
                name = file.dotted(decorator.func if called else decorator)  # type: ignore[attr-defined]
                if _is_cute(name):
                    yield f"kernel_cutlass_{node.name}_*", "cutlass"
                elif name in aliases or _is_jit(name):
                    renamed = called and any(k.arg == "repr" for k in decorator.keywords)  # type: ignore[attr-defined]
                    yield node.name + ("*" if renamed else ""), "triton"
        elif isinstance(node, ast.Call) and _is_jit(file.dotted(node.func)):
            yield from ((a.id, "triton") for a in node.args if isinstance(a, ast.Name))


def _jit_aliases(file: SourceFile) -> set[str]:
    """Names that are given ``triton.jit``, e.g. ``jit = triton.jit if triton else passed``."""
    found = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            inner = (part for part in ast.walk(node.value) if isinstance(part, ast.Attribute))
            if any(_is_jit(file.dotted(part)) for part in inner):
                found.add(node.targets[0].id)
    return found


def _is_jit(name: str) -> bool:
    return name.startswith("triton.") and name.endswith(".jit")


def _is_cute(name: str) -> bool:
    return name.startswith("cutlass.") and name.endswith(".kernel")
