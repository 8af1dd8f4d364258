"""Read a TOML declaration into a model; say file, line, field and mend for what is wrong with it.

``tomllib`` forgets where a value stood, so the line of a field is found again in the text.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tasks.errors import BrokenTask

Model = TypeVar("Model", bound=BaseModel)
FieldPath = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def read_model(path: Path, model: type[Model], filled: Mapping[str, Any] | None = None) -> Model:
    """Read ``path`` as a ``model``; ``filled`` are fields that the file does not hold.

    Raises BrokenTask with one line a problem, ``file:line: field: what is wrong; the mend``.
    """
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        line = f":{at.group(1)}" if at else ""
        raise BrokenTask(f"{path}{line}: not TOML: {error}; mend the syntax there") from error
    try:
        return model.model_validate({**document, **(filled or {})})
    except ValidationError as error:
        raise BrokenTask("\n".join(_problems(path, text, error, model))) from error


def read_text(path: Path) -> str:
    """The file's text. Raises BrokenTask when it is missing or no UTF-8."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise BrokenTask(f"{path}: missing; write it") from None
    except UnicodeDecodeError as error:
        raise BrokenTask(f"{path}: not UTF-8 ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise BrokenTask(f"{path}: cannot be read: {error.strerror}") from error


def line_of(text: str, field: FieldPath) -> int:
    """The 1-based line of ``field``, else of the nearest table around it, else 1."""
    lines = dict(_places(text))
    for length in range(len(field), 0, -1):
        if field[:length] in lines:
            return lines[field[:length]]
    return 1


def _problems(
    path: Path, text: str, error: ValidationError, model: type[BaseModel]
) -> Iterator[str]:
    for problem in error.errors():
        field: FieldPath = problem["loc"]
        shown = ".".join(str(part) for part in field) or "(whole file)"
        mend = _mend(problem["type"], field, problem["msg"], model)
        yield f"{path}:{line_of(text, field)}: {shown}: {mend}"


def _mend(kind: str, field: FieldPath, message: str, model: type[BaseModel]) -> str:
    name = str(field[-1]) if field else ""
    if kind == "missing":
        return f"missing; add `{name}`"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(name, sorted(set(_field_names(model))), n=1)
        return "unknown field; " + (f"did you mean `{near[0]}`?" if near else "remove it")
    return f"{message[0].lower()}{message[1:]}; mend the value"


def _field_names(model: type[BaseModel]) -> Iterator[str]:
    """The names of the model's fields and, one after another, of the models inside it."""
    definitions = model.model_json_schema().get("$defs", {}).values()
    yield from model.model_fields
    for definition in definitions:
        yield from definition.get("properties", {})


def _places(text: str) -> Iterator[tuple[FieldPath, int]]:
    """Every table header and key with its line, in the order of the file."""
    table: FieldPath = ()
    counts: dict[FieldPath, int] = {}
    quote = ""  # the delimiter of the multi-line string that we are in
    for number, line in enumerate(text.splitlines(), start=1):
        if quote:
            quote = "" if quote in line else quote
            continue
        if header := _HEADER.match(line):
            table = _resolve(_parts(header.group(2)), header.group(1) == "[[", counts)
            yield table, number
        elif key := _KEY.match(line):
            yield table + _parts(key.group(1)), number
        quote = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _resolve(parts: tuple[str, ...], is_array: bool, counts: dict[FieldPath, int]) -> FieldPath:
    """The path of a table header: names, with the index after each array of tables."""
    path: FieldPath = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if is_array and position == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
