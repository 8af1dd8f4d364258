"""What the files of one submission know of each other: functions, instances and stores by name.

A name is known under the file and its own name, ``helper.fetch`` or ``helper.Memo.get``: by which
package a file is imported makes no difference.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from graders.auditor.labels import Function, Label


@dataclass
class Links:
    """Filled by the flows of all files, and shared by them."""

    returns: dict[int, set[Label]] = field(default_factory=dict)  # by id of the function's node
    stored: dict[str, set[Label]] = field(default_factory=dict)  # what was ever put into a store
    functions: dict[str, Function] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # "file.name": "file.Class"
    classes: set[str] = field(default_factory=set)
    literals: dict[str, ast.expr] = field(default_factory=dict)  # values of module-level names

    def add(self, module: str, body: Iterable[ast.stmt]) -> None:
        """Learn the top-level definitions of a file."""
        for statement in body:
            match statement:
                case ast.FunctionDef():
                    self.functions[f"{module}.{statement.name}"] = statement
                case ast.ClassDef():
                    self.classes.add(f"{module}.{statement.name}")
                    for part in statement.body:
                        if isinstance(part, ast.FunctionDef):
                            self.functions[f"{module}.{statement.name}.{part.name}"] = part
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                    self.functions[f"{module}.{name}"] = value
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made))
                ):
                    self.instances[f"{module}.{name}"] = f"{module}.{made}"

    def function(self, dotted: str) -> Function | None:
        """The function that an imported name denotes, a method of an instance included."""
        parts = dotted.split(".")
        found = self.functions.get(tail(dotted)) or self.functions.get(".".join(parts[-3:]))
        if found is None and len(parts) > 2:
            made = self.instances.get(".".join(parts[-3:-1]))
            found = self.functions.get(f"{made}.{parts[-1]}") if made else None
        if found is None:
            made = self.instances.get(tail(dotted))
            found = self.functions.get(f"{made}.__call__") if made else None
        return found


def tail(dotted: str) -> str:
    """File and name of a dotted name."""
    return ".".join(dotted.split(".")[-2:])


def module_of(path: str) -> str:
    """The name by which other files import this one."""
    file = PurePosixPath(path)
    return file.parent.name if file.stem == "__init__" and file.parent.name else file.stem
