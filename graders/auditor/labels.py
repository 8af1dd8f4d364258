"""The labels that ``flow`` gives to expressions, and which calls give which.

Labels of an expression:

- ``value``    depends on the contents of an argument
- ``shape``    depends on an argument's shape, size, dtype or length alone
- ``identity``, ``pointer``   the argument's ``id`` or address
- ``content``  a digest of all of it, ``reduced`` a sum or an extreme, ``sampled`` a few elements
- ``state``    read from something that outlives the call
- ``Lookup``   *is* what an outliving container or variable holds (not computed from it), and the
  labels of the key it was found by
"""

import ast
from dataclasses import dataclass
from typing import TypeAlias

KEYS = ("content", "sampled", "reduced", "pointer", "identity", "shape")
"""Labels of a key by which an earlier result can be found again."""


@dataclass(frozen=True)
class Lookup:
    """A value as it lay in ``store``, found by a key with ``keys``."""

    store: str
    keys: frozenset[str]


Label: TypeAlias = str | Lookup
Labels: TypeAlias = frozenset[Label]
NONE: Labels = frozenset()
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

META = frozenset({"shape", "size", "ndim", "dtype", "strides", "nbytes", "itemsize", "flags"})
POINTERS = frozenset({"ctypes", "__array_interface__", "__cuda_array_interface__"})
POINTER_CALLS = frozenset({"data_ptr", "addressof"})
IDENTITY = frozenset({"builtins.id", "weakref.ref", "weakref.proxy"})
_DIGEST_CALLS = frozenset(
    {"tobytes", "tostring", "digest", "hexdigest", "dumps", "tolist", "crc32", "adler32", "hash"}
)
_DIGEST_NAMES = (
    *("hashlib.", "zlib.crc32", "zlib.adler32", "builtins.hash", "builtins.bytes"),
    *("pickle.dumps", "marshal.dumps", "binascii.crc"),
)
_REDUCTIONS = frozenset({"sum", "mean", "std", "var", "dot", "vdot", "prod", "trace", "item"})
_REDUCTIONS |= {"max", "min", "norm", "amax", "amin", "ptp"}
SHAPED = frozenset(
    f"numpy.{name}" for name in ("empty_like", "zeros_like", "ones_like", "shape", "ndim", "size")
) | {"builtins.len", "builtins.type", "builtins.isinstance", "builtins.range"}
SAME = frozenset({"copy", "view", "clone", "astype", "get", "pop", "setdefault", "reshape"})
SAME_NAMES = frozenset(
    {"numpy.array", "numpy.asarray", "numpy.copy", "numpy.ascontiguousarray", "builtins.tuple"}
    | {"builtins.list", "builtins.dict", "copy.copy", "copy.deepcopy", "numpy.load"}
)
LOADERS = frozenset(
    {"numpy.load", "numpy.fromfile", "numpy.loadtxt", "pickle.load", "pickle.loads"}
    | {"numpy.memmap", "joblib.load", "shelve.open"}
)
SAVERS = frozenset({"numpy.save", "numpy.savez", "pickle.dump", "numpy.savetxt", "tofile"})


def default_of(function: ast.FunctionDef | ast.Lambda, name: str) -> ast.expr | None:
    """The default value of a parameter."""
    plain = [*function.args.posonlyargs, *function.args.args]
    late = plain[len(plain) - len(function.args.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(late, function.args.defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return next((default for arg, default in pairs if arg.arg == name), None)


def is_parameter(function: ast.FunctionDef | ast.Lambda, name: str) -> bool:
    """True for a parameter other than the receiver."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    return name not in ("self", "cls") and any(arg.arg == name for arg in every)


def plain(labels: Labels) -> Labels:
    """Without lookups: what is computed from a stored value is not that value."""
    return frozenset(label for label in labels if not isinstance(label, Lookup))


def shape_of(labels: Labels) -> Labels:
    """What is left when only the shape is looked at."""
    return frozenset({"shape"}) if "value" in labels else labels & {"shape", "state"}


def key_labels(labels: Labels) -> frozenset[str]:
    """Labels of a key: a digest of content says more than that it depends on content."""
    return frozenset(label for label in labels if isinstance(label, str) and label in KEYS)


def digest_kind(names: frozenset[str], method: str) -> str | None:
    """The label of a call that makes little of much; None for other calls."""
    if method in _DIGEST_CALLS or any(name.startswith(_DIGEST_NAMES) for name in names):
        return "content"
    reduced = method in _REDUCTIONS or any(
        name.startswith("numpy.") and name.rsplit(".", 1)[-1] in _REDUCTIONS for name in names
    )
    return "reduced" if reduced else None


def is_sample(key: ast.expr) -> bool:
    """A fixed element, a short prefix, or a stride: part of the input stands for all of it."""
    if isinstance(key, ast.Tuple):
        fixed = all(isinstance(part, ast.Constant) and part.value is not None for part in key.elts)
        return fixed or any(is_sample(part) for part in key.elts)
    if isinstance(key, ast.Slice):
        stepped = key.step is not None and not (
            isinstance(key.step, ast.Constant) and key.step.value in (None, 1)
        )
        stepped = stepped and not isinstance(key.step, ast.UnaryOp)
        stop = key.upper
        return stepped or (isinstance(stop, ast.Constant) and isinstance(stop.value, int))
    if isinstance(key, ast.UnaryOp):
        return is_sample(key.operand)
    return False
