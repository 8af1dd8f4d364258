"""Which function of a submission a call means: of its own file, of an instance, of another file."""

import ast
from collections.abc import Iterator

from graders.auditor.labels import Function
from graders.auditor.links import Links, tail
from graders.auditor.pysource import PySource


class Callees:
    """The functions that one file can call."""

    def __init__(self, source: PySource, links: Links, module: str) -> None:
        self._source = source
        self._links = links
        self._module = module
        self._by_name: dict[str, Function] = {}
        for node in source.nodes:
            match node:
                case ast.FunctionDef(name=name):
                    self._by_name[name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                    self._by_name[name] = value

    def of(self, node: ast.Call) -> Function | None:
        """The function of this submission that is called."""
        base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        method = node.func.attr if isinstance(node.func, ast.Attribute) else None
        if isinstance(base, ast.Name):
            own = base.id in ("self", "cls")
            found = self._by_name.get(method if own and method else base.id)
            if found is not None and (method is None or own):
                return found
            for made in self._classes_of(base):
                function = self._links.functions.get(f"{made}.{method or '__call__'}")
                if function is not None:
                    return function
        names = self._source.names.resolve(node.func)
        linked = (self._links.function(name) for name in sorted(names))
        return next((function for function in linked if function is not None), None)

    def _classes_of(self, name: ast.Name) -> Iterator[str]:
        """Classes of this submission that ``name`` may be an instance of."""
        for binding in self._source.names.bindings(name.id, name):
            if not isinstance(binding.value, ast.Call):
                continue
            made = binding.value.func
            known = {tail(dotted) for dotted in self._source.names.resolve(made)}
            if isinstance(made, ast.Name):
                known.add(f"{self._module}.{made.id}")
            yield from sorted(known & self._links.classes)
