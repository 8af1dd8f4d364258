"""Where values come from, inside one file: what an expression owes to a call's inputs.

Labels of an expression:

- ``value``    depends on the contents of an argument
- ``shape``    depends on an argument's shape, size, dtype or length alone
- ``identity``, ``pointer``   the argument's ``id`` or address
- ``content``  a digest of all of it, ``reduced`` a sum or an extreme, ``sampled`` a few elements
- ``state``    read from something that outlives the call
- ``Lookup``   *is* what an outliving container or variable holds (not computed from it), and the
  labels of the key it was found by

The analysis does not follow the order of statements: a name has the labels of all that is ever
assigned to it. That errs towards suspicion; ``memo`` takes out what is overwritten before it is
returned.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from graders.auditor.pysource import PySource

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

_META = frozenset({"shape", "size", "ndim", "dtype", "strides", "nbytes", "itemsize", "flags"})
_POINTERS = frozenset({"ctypes", "__array_interface__", "__cuda_array_interface__"})
_POINTER_CALLS = frozenset({"data_ptr", "addressof"})
_IDENTITY = frozenset({"builtins.id", "weakref.ref", "weakref.proxy"})
_DIGEST_CALLS = frozenset(
    {"tobytes", "tostring", "digest", "hexdigest", "dumps", "tolist", "crc32", "adler32", "hash"}
)
_DIGEST_NAMES = (
    *("hashlib.", "zlib.crc32", "zlib.adler32", "builtins.hash", "builtins.bytes"),
    *("pickle.dumps", "marshal.dumps", "binascii.crc"),
)
_REDUCTIONS = frozenset({"sum", "mean", "std", "var", "dot", "vdot", "prod", "trace", "item"})
_REDUCTIONS |= {"max", "min", "norm"}
_SHAPED = frozenset(
    f"numpy.{name}" for name in ("empty_like", "zeros_like", "ones_like", "shape", "ndim", "size")
) | {"builtins.len", "builtins.type", "builtins.isinstance", "builtins.range"}
_SAME = frozenset({"copy", "view", "clone", "astype", "get", "pop", "setdefault", "reshape"})
_SAME_NAMES = frozenset(
    {"numpy.array", "numpy.asarray", "numpy.copy", "numpy.ascontiguousarray", "builtins.tuple"}
    | {"builtins.list", "builtins.dict", "copy.copy", "copy.deepcopy", "numpy.load"}
)
_LOADERS = frozenset(
    {"numpy.load", "numpy.fromfile", "numpy.loadtxt", "pickle.load", "pickle.loads"}
    | {"numpy.memmap", "joblib.load", "shelve.open"}
)
_SAVERS = frozenset({"numpy.save", "numpy.savez", "pickle.dump", "numpy.savetxt", "tofile"})
_MAX_PASSES = 6
DISK = "<disk>"


@dataclass
class Flow:
    """Labels in one file. ``stored`` says what was ever put into each outliving store."""

    source: PySource
    stored: dict[str, set[Label]] = field(default_factory=dict)
    literal_stores: dict[str, ast.expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._labels: dict[tuple[int, str], set[Label]] = {}
        self._returns: dict[int, set[Label]] = {}
        self._functions = [
            node for node in self.source.nodes if isinstance(node, ast.FunctionDef | ast.Lambda)
        ]
        self._by_name = {f.name: f for f in self._functions if isinstance(f, ast.FunctionDef)}
        self._depth = 0
        self.outliving = self._outliving()
        for _ in range(_MAX_PASSES):
            before = self._size()
            for function in self._functions:
                self._visit(function)
            if self._size() == before:
                break

    def _size(self) -> int:
        tables = (self._labels, self._returns, self.stored)
        return sum(len(labels) for table in tables for labels in table.values())

    # --- what outlives a call ------------------------------------------------------------------

    def _outliving(self) -> frozenset[str]:
        """Names bound at module level, and names that functions declare global."""
        names = set()
        for statement in self.source.top_level():
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            for target in targets:
                parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                for part in parts:
                    if isinstance(part, ast.Name):
                        names.add(part.id)
                        if len(targets) == 1 and len(parts) == 1 and statement.value is not None:
                            self.literal_stores[part.id] = statement.value
        for node in self.source.nodes:
            if isinstance(node, ast.Global):
                names.update(node.names)
        return frozenset(names)

    def store_name(self, node: ast.expr) -> str | None:
        """The outliving store that ``node`` denotes: a global, an attribute, a default, a cell."""
        if isinstance(node, ast.Name):
            scope = self.source.names.scope_of.get(node)
            if node.id in self.outliving and not self._is_local(node.id, scope):
                return node.id
            return self._enclosing(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in ("self", "cls") or owner in self._by_name or owner[:1].isupper():
                return f"{owner}.{node.attr}"
        return None

    def _is_local(self, name: str, scope: ast.AST | None) -> bool:
        if scope is None or isinstance(scope, ast.Module):
            return False
        declared = any(
            isinstance(part, ast.Global) and name in part.names for part in ast.walk(scope)
        )
        bound = self.source.names.bound.get(scope, {})  # type: ignore[arg-type]
        return name in bound and not declared

    def _enclosing(self, node: ast.Name) -> str | None:
        """A name of an enclosing function, or a mutable default: both live as long as it does."""
        names = self.source.names
        scope = names.scope_of.get(node)
        if isinstance(scope, (ast.FunctionDef, ast.Lambda)):
            default = _default_of(scope, node.id)
            if isinstance(default, (ast.Dict, ast.List, ast.Call)):
                return f"{getattr(scope, 'name', 'lambda')}({node.id})"
            outer = names.parent.get(scope)
            if node.id not in names.bound.get(scope, {}) and isinstance(outer, ast.FunctionDef):
                if any(b.value is not None for b in names.bound.get(outer, {}).get(node.id, [])):
                    return f"{outer.name}.{node.id}"
        return None

    # --- one function --------------------------------------------------------------------------

    def _visit(self, function: Function) -> None:
        if isinstance(function, ast.Lambda):
            self._returns.setdefault(id(function), set()).update(self.labels(function.body))
            return
        for node in ast.walk(function):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        self._assign(target, self.labels(node.value))
                case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() if node.value is not None:
                    self._assign(node.target, self.labels(node.value))
                case ast.For() | ast.comprehension():
                    self._assign(node.target, self.labels(node.iter))
                case ast.withitem() if node.optional_vars is not None:
                    self._assign(node.optional_vars, self.labels(node.context_expr))
                case ast.Return() if node.value is not None:
                    if self.source.names.scope_of.get(node) is function:
                        self._returns.setdefault(id(function), set()).update(
                            self.labels(node.value)
                        )
                case ast.Call():
                    self._call_effects(node)

    def _assign(self, target: ast.expr, labels: Labels) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assign(part, labels)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, labels)
        elif isinstance(target, ast.Subscript):
            store = self.store_name(target.value)
            if store is not None:
                self._put(store, labels)
            elif isinstance(target.value, ast.Name):
                self._add(target.value, frozenset(x for x in labels if not isinstance(x, Lookup)))
        else:
            store = self.store_name(target)
            if store is not None:
                self._put(store, labels)
            elif isinstance(target, ast.Name):
                self._add(target, labels)

    def _add(self, name: ast.Name, labels: Labels) -> None:
        scope = self.source.names.scope_of.get(name)
        self._labels.setdefault((id(scope), name.id), set()).update(labels)

    def _put(self, store: str, labels: Labels) -> None:
        self.stored.setdefault(store, set()).update(labels)

    def _call_effects(self, node: ast.Call) -> None:
        """Containers are filled by methods, arrays by ``out=`` and files by savers."""
        names = self.source.names.resolve(node.func)
        given = [self.labels(argument) for argument in node.args]
        if names & _SAVERS or (isinstance(node.func, ast.Attribute) and node.func.attr == "tofile"):
            self._put(DISK, frozenset().union(*given) if given else frozenset({"value"}))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PUTTERS and given:
            store = self.store_name(node.func.value)
            if store is not None:
                self._put(store, given[-1])
            elif isinstance(node.func.value, ast.Name):
                self._add(node.func.value, given[-1])
        for keyword in node.keywords:
            if keyword.arg == "out" and isinstance(keyword.value, ast.Name) and given:
                self._add(keyword.value, _plain(frozenset().union(*given)))

    # --- one expression ------------------------------------------------------------------------

    def labels(self, node: ast.AST | None) -> Labels:
        """Labels of an expression."""
        if node is None or self._depth > 60:
            return NONE
        self._depth += 1
        try:
            return self._of(node)
        finally:
            self._depth -= 1

    def _of(self, node: ast.AST) -> Labels:
        match node:
            case ast.Name():
                return self._of_name(node)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Subscript():
                return self._of_item(node)
            case ast.Call():
                return self._of_call(node)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._union(node.elts)
            case ast.Dict():
                return self._union([value for value in node.values if value is not None])
            case ast.IfExp():
                return self._union([node.body, node.orelse])
            case ast.BoolOp():
                return self._union(node.values)
            case ast.NamedExpr():
                return self.labels(node.value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self.labels(node.elt)
            case ast.Starred():
                return self.labels(node.value)
            case (
                ast.JoinedStr() | ast.FormattedValue() | ast.BinOp() | ast.UnaryOp() | ast.Compare()
            ):
                return _plain(self._union(list(ast.iter_child_nodes(node))))
        return NONE

    def _union(self, nodes: list[ast.expr] | list[ast.AST]) -> Labels:
        return frozenset().union(*(self.labels(node) for node in nodes))

    def _of_name(self, node: ast.Name) -> Labels:
        names = self.source.names
        store = self.store_name(node)
        if store is not None:
            return frozenset({"state", Lookup(store, NONE)})  # type: ignore[arg-type]
        scope = names.scope_of.get(node)
        while scope is not None:
            found = self._labels.get((id(scope), node.id), set())
            if isinstance(scope, (ast.FunctionDef, ast.Lambda)) and _is_parameter(scope, node.id):
                return frozenset({"value", *found})
            if found or node.id in names.bound.get(scope, {}):
                return frozenset(found)
            scope = names.parent.get(scope)
        return NONE

    def _of_attribute(self, node: ast.Attribute) -> Labels:
        store = self.store_name(node)
        if store is not None:
            return frozenset({"state", Lookup(store, frozenset())})
        base = self.labels(node.value)
        if node.attr in _META:
            return _shape_of(base)
        if node.attr in _POINTERS and "value" in base:
            return frozenset({"pointer"})
        return base

    def _of_item(self, node: ast.Subscript) -> Labels:
        store = self.store_name(node.value)
        key = self.labels(node.slice)
        if store is not None:
            return frozenset({"state", Lookup(store, _key_labels(key))})
        base = self.labels(node.value)
        flat = isinstance(node.value, ast.Attribute) and node.value.attr == "flat"
        if "value" in base and (flat or _is_sample(node.slice)):
            return (base - {"value"}) | {"value", "sampled"}
        return base

    def _of_call(self, node: ast.Call) -> Labels:
        names = self.source.names.resolve(node.func)
        given = self._union([*node.args, *(k.value for k in node.keywords)])
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        base = self.labels(node.func.value) if isinstance(node.func, ast.Attribute) else NONE
        everything = given | base
        if isinstance(node.func, ast.Attribute) and method in ("get", "pop", "setdefault"):
            store = self.store_name(node.func.value)
            if store is not None:
                key = self.labels(node.args[0]) if node.args else NONE
                return frozenset({"state", Lookup(store, _key_labels(key))})
        if names & _LOADERS:
            return frozenset({"state", Lookup(DISK, _key_labels(everything))})
        if names & _IDENTITY and "value" in given:
            return frozenset({"identity"})
        if method in _POINTER_CALLS and "value" in everything:
            return frozenset({"pointer"})
        if names & _SHAPED:
            return _shape_of(given)
        if everything & {"value", "sampled"}:
            kind = _digest_kind(names, method)
            if kind is not None:
                return _plain(everything) | {"sampled" if "sampled" in everything else kind}
        local = self._local(node)
        if local is not None:
            return self._of_local(local, node, given)
        if method in _SAME:
            return base | _plain(given)
        if names & _SAME_NAMES:
            return everything
        return _plain(everything)

    def _local(self, node: ast.Call) -> ast.FunctionDef | None:
        if isinstance(node.func, ast.Name):
            return self._by_name.get(node.func.id)
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            if node.func.value.id in ("self", "cls"):
                return self._by_name.get(node.func.attr)
        return None

    def _of_local(self, function: ast.FunctionDef, node: ast.Call, given: Labels) -> Labels:
        returned = frozenset(self._returns.get(id(function), set()))
        if _is_memoised(self.source, function):
            self._put(f"{function.name}()", returned | (given & {"value", "shape"}))
            return returned | {Lookup(f"{function.name}()", _key_labels(given))}
        if "value" in returned and "value" not in given:  # its own argument was no live content
            returned = (returned - {"value"}) | (given & {"shape", "pointer", "identity"})
        return returned | (given & {"sampled"})


_PUTTERS = frozenset({"append", "add", "setdefault", "insert", "appendleft", "put", "__setitem__"})


def _default_of(function: ast.FunctionDef | ast.Lambda, name: str) -> ast.expr | None:
    plain = [*function.args.posonlyargs, *function.args.args]
    late = plain[len(plain) - len(function.args.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(late, function.args.defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return next((default for arg, default in pairs if arg.arg == name), None)


def _is_parameter(function: ast.FunctionDef | ast.Lambda, name: str) -> bool:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    return name not in ("self", "cls") and any(arg.arg == name for arg in every)


def _plain(labels: Labels) -> Labels:
    """Without lookups: what is computed from a stored value is not that value."""
    kept = frozenset(label for label in labels if not isinstance(label, Lookup))
    return kept


def _shape_of(labels: Labels) -> Labels:
    return frozenset({"shape"}) if "value" in labels else labels & {"shape", "state"}


def _key_labels(labels: Labels) -> frozenset[str]:
    """Labels of a key: a digest of content says more than that it depends on content."""
    return frozenset(label for label in labels if isinstance(label, str) and label in KEYS)


def _digest_kind(names: frozenset[str], method: str) -> str | None:
    if method in _DIGEST_CALLS or any(name.startswith(_DIGEST_NAMES) for name in names):
        return "content"
    reduced = method in _REDUCTIONS or any(
        name.startswith("numpy.") and name.rsplit(".", 1)[-1] in _REDUCTIONS for name in names
    )
    return "reduced" if reduced else None


def _is_sample(key: ast.expr) -> bool:
    """A fixed element, a short prefix, or a stride: part of the input stands for all of it."""
    if isinstance(key, ast.Tuple):
        fixed = all(isinstance(part, ast.Constant) and part.value is not None for part in key.elts)
        return fixed or any(_is_sample(part) for part in key.elts)
    if isinstance(key, ast.Slice):
        stepped = key.step is not None and not (
            isinstance(key.step, ast.Constant) and key.step.value in (None, 1)
        )
        stepped = stepped and not isinstance(key.step, ast.UnaryOp)
        stop = key.upper
        return stepped or (isinstance(stop, ast.Constant) and isinstance(stop.value, int))
    if isinstance(key, ast.UnaryOp):
        return _is_sample(key.operand)
    return False


def _is_memoised(source: PySource, function: ast.FunctionDef) -> bool:
    wanted = {"functools.lru_cache", "functools.cache"}
    for decorator in function.decorator_list:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        if source.names.resolve(node) & wanted:
            return True
    return False


def statements(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The block itself and every block inside it."""
    yield body
    for statement in body:
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                yield from statements(inner)
        for handler in getattr(statement, "handlers", []):
            yield from statements(handler.body)
