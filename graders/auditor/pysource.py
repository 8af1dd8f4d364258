"""One parsed Python file of a submission: its live statements and what they touch."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from graders.auditor.folding import Names
from graders.auditor.hits import Hit, quotable
from graders.auditor.trees import walk

MAX_NODES = 100_000
"""Of one file: some ten thousand lines. More is data, or meant not to be read."""


class TooLarge(ValueError):
    """A file is too large to be followed."""


@dataclass(frozen=True)
class Store:
    """One write to a module's attribute, however it is spelled."""

    node: ast.AST
    targets: frozenset[str]  # dotted; "<owner>.?" where the attribute's name is not known
    value: ast.expr | None


class PySource:
    """A Python file. ``live`` is set by the closure: names of top-level definitions in use."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.text = data.decode("utf-8", "surrogateescape")
        self.tree = ast.parse(data)
        self.size = sum(1 for _ in ast.walk(self.tree))
        if self.size > MAX_NODES:
            raise TooLarge(f"{self.size} nodes")
        self.names = Names(self.tree)
        self._ends = _line_ends(self.text)
        self.lines = [self._lines(n, n) for n in range(1, len(self._ends) + 1)]
        self.live: frozenset[str] | None = None  # None: everything

    def hit(self, node: ast.AST, why: str, **more: object) -> Hit:
        """A hit at ``node``, quoting the source lines it begins on."""
        first: int = getattr(node, "lineno", 1)
        last: int = getattr(node, "end_lineno", None) or first
        return self.hit_lines(first, min(last, first + 5), why, **more)

    def _lines(self, first: int, last: int) -> str:
        first = min(first, len(self._ends))  # a text may have more lines than its constant
        start = self._ends[first - 2] if first > 1 else 0
        return self.text[start : self._ends[min(last, len(self._ends)) - 1]].rstrip("\r\n")

    def hit_lines(self, first: int, last: int, why: str, **more: object) -> Hit:
        """A hit on whole lines (1-based, both included)."""
        quote = quotable(self._lines(first, last))
        return Hit(place=self.path, quote=quote, why=why, lines=(first, last), **more)  # type: ignore[arg-type]

    # --- what is live --------------------------------------------------------------------------

    def top_level(self) -> Iterator[ast.stmt]:
        """Statements of the module that run or can be called; `if __name__ == "__main__"` out."""
        for statement in self.tree.body:
            if _is_main_guard(statement):
                continue
            name = getattr(statement, "name", None)
            if name is None or self.live is None or name in self.live:
                yield statement

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All live nodes, in order of the source."""
        return [node for statement in self.top_level() for node in walk(statement)]

    # --- what is touched -----------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[tuple[ast.Call, frozenset[str]]]:
        """Live calls with the dotted names of what is called."""
        return [
            (node, self.names.resolve(node.func))
            for node in self.nodes
            if isinstance(node, ast.Call)
        ]

    @cached_property
    def touches(self) -> list[tuple[ast.expr, frozenset[str]]]:
        """Live expressions that denote an attribute of a module (a use need not be a call)."""
        kinds = (ast.Attribute, ast.Name, ast.Subscript, ast.Call)
        found = [(node, self.names.resolve(node)) for node in self.nodes if isinstance(node, kinds)]
        return [(node, names) for node, names in found if names]

    @cached_property
    def stores(self) -> list[Store]:
        """Live writes to attributes of modules and to the module table."""
        return [store for node in self.nodes for store in self._stores(node)]

    def _stores(self, node: ast.AST) -> Iterator[Store]:
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            if isinstance(node.ctx, (ast.Store, ast.Del)):
                yield from self._store(node, self._targets(node), self._value_of(node))
        elif isinstance(node, ast.Call):
            yield from self._stores_of_call(node)

    def _store(
        self, node: ast.AST, targets: frozenset[str], value: ast.expr | None
    ) -> Iterator[Store]:
        if targets:
            yield Store(node, targets, value)

    def _targets(self, node: ast.Attribute | ast.Subscript) -> frozenset[str]:
        if isinstance(node, ast.Attribute):
            return self.names.resolve(node)
        owners = self.names.resolve(node.value)
        if "sys.modules" in owners:
            return frozenset(f"sys.modules[{name}]" for name in self._keys(node.slice))
        dicts = {owner.removesuffix(".__dict__") for owner in owners if owner.endswith(".__dict__")}
        return frozenset(f"{owner}.{name}" for owner in dicts for name in self._keys(node.slice))

    def _keys(self, node: ast.expr) -> tuple[str, ...]:
        return self.names.strings(node) or ("?",)

    @cached_property
    def _assigned(self) -> dict[ast.AST, ast.expr]:
        pairs: dict[ast.AST, ast.expr] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                pairs.update(dict.fromkeys(node.targets, node.value))
        return pairs

    def _value_of(self, target: ast.AST) -> ast.expr | None:
        return self._assigned.get(target)

    def _stores_of_call(self, node: ast.Call) -> Iterator[Store]:
        functions = self.names.resolve(node.func)
        value = node.args[-1] if node.args else None
        if functions & _SETTERS and len(node.args) >= 2:
            owners = self.names.resolve(node.args[0])
            names = self._keys(node.args[1])
            yield from self._store(
                node, frozenset(f"{owner}.{name}" for owner in owners for name in names), value
            )
        if functions & _PATCHERS and node.args:
            yield from self._store(node, frozenset(self.names.strings(node.args[0])), value)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _DICT_WRITERS:
            yield from self._dict_writes(node, node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("setattr", "__setattr__"):
            yield from self._method_sets(node, node.func)

    def _method_sets(self, node: ast.Call, function: ast.Attribute) -> Iterator[Store]:
        """``numpy.__setattr__("x", f)`` and pytest's ``monkeypatch.setattr(numpy, "x", f)``."""
        if len(node.args) == 2:
            owners, key = self.names.resolve(function.value), node.args[0]
        elif len(node.args) == 3:
            owners, key = self.names.resolve(node.args[0]), node.args[1]
        else:
            return
        targets = frozenset(f"{owner}.{name}" for owner in owners for name in self._keys(key))
        yield from self._store(node, targets, node.args[-1])

    def _dict_writes(self, node: ast.Call, function: ast.Attribute) -> Iterator[Store]:
        owners = self.names.resolve(function.value)
        for owner in owners:
            if owner == "sys.modules" or owner.endswith(".__dict__"):
                base = owner.removesuffix(".__dict__")
                names = [key.arg or "?" for key in node.keywords]
                for argument in node.args[:1]:
                    names += self._written_keys(argument)
                form = "sys.modules[{}]" if owner == "sys.modules" else base + ".{}"
                yield from self._store(node, frozenset(form.format(name) for name in names), None)

    def _written_keys(self, argument: ast.expr) -> list[str]:
        if isinstance(argument, ast.Dict):
            return [name for key in argument.keys if key for name in self._keys(key)]
        return list(self._keys(argument))

    # --- words ---------------------------------------------------------------------------------

    @cached_property
    def docstrings(self) -> frozenset[ast.AST]:
        """Bare strings: they run nothing."""
        return frozenset(
            node.value
            for node in walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )

    @cached_property
    def strings(self) -> list[tuple[ast.Constant, str]]:
        """Live string constants that are no docstrings."""
        return [
            (node, node.value)
            for node in self.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in self.docstrings
        ]

    @cached_property
    def texts(self) -> list[tuple[ast.expr, str]]:
        """Live strings, and the sums of strings that fold."""
        terms = [n for n in self.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add)]
        inner = {node.left for node in terms}  # `a + b` of `a + b + c`
        sums = [
            (node, text) for node in terms if node not in inner for text in self.names.strings(node)
        ]
        return [*self.strings, *sums]

    def texts_behind(self, node: ast.AST, depth: int = 3) -> Iterator[str]:
        """Texts, and constant parts of texts, in an expression and in what its names were given."""
        for part in walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
            elif isinstance(part, (ast.BinOp, ast.Call)):
                yield from self.names.strings(part)
            elif isinstance(part, ast.Name) and depth:
                for binding in self.names.bindings(part.id, part):
                    for given in (binding.value, binding.iterates):
                        if given is not None:
                            yield from self.texts_behind(given, depth - 1)

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Line and text of every comment."""
        try:
            text = io.StringIO(self.text, newline=None)  # line ends of any kind, as the parser
            tokens = list(tokenize.generate_tokens(text.readline))
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return [
                (n, line[line.index("#") :]) for n, line in enumerate(self.lines, 1) if "#" in line
            ]
        return [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]


def _line_ends(text: str) -> list[int]:
    """Offsets after each line, counted as Python counts lines."""
    ends = [match.end() for match in re.finditer(r"\r\n|\r|\n", text)]
    return [*ends, len(text)]


_SETTERS = frozenset({"builtins.setattr", "builtins.object.__setattr__", "builtins.delattr"})
_PATCHERS = frozenset({"unittest.mock.patch", "mock.patch"})
_DICT_WRITERS = frozenset({"update", "setdefault", "__setitem__", "pop", "__delitem__"})


def _is_main_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    test = statement.test
    sides = [test.left, *test.comparators]
    return (
        any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
        and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)
        and isinstance(test.ops[0], ast.Eq)
        and not statement.orelse
    )
