"""Known models: the built-in roster, the user's file over it, and the forms that need no entry.

What a person may write for a model::

    glm-5                             an entry of the roster
    openai/<id>  anthropic/<id>       the provider's own model
    openrouter/<vendor>/<id>          through OpenRouter
    http://host:port/v1#<id>          any server that speaks chat completions
    ...?effort=high&temperature=0.2   effort and sampling (built-in models: knobs)
    ...@label                         tells two checkpoints behind one name apart
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import UserError
from orchestrator.models.entry import ModelEntry, Prices, Rates
from orchestrator.models.knobs import Knobs, split_suffix

BUILT_IN = Path(__file__).with_name("roster.toml")
DIRECT_FORMS = (
    "openai/<id>, anthropic/<id>, openrouter/<vendor>/<id> and http://host:port/v1#<id> "
    "need no entry"
)
_SAMPLING = {"temperature": float, "top_p": float, "seed": int, "max_tokens": int}
_LABEL = re.compile(r"(?P<rest>.+)@(?P<label>[A-Za-z0-9._:+-]+)")


class UnknownModel(UserError):
    """No model of that name; the message offers the nearest ones."""


class BadConfig(UserError):
    """A roster file that cannot be used: says file, line, field and what to write instead."""


class Roster:
    """Known models by name."""

    def __init__(self, entries: Mapping[str, ModelEntry]) -> None:
        self._entries = dict(entries)
        self._resolved: dict[str, ModelEntry] = {}

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self._entries.values())

    def resolve(self, name: str) -> ModelEntry:
        """The entry that ``name`` asks for. Raises UnknownModel or BadConfig."""
        if name not in self._resolved:
            self._resolved[name] = self._resolve(name)
        return self._resolved[name]

    def secrets(self) -> dict[str, str]:
        """Variable -> value of all keys that are set, of known and of resolved models."""
        entries = (*self._entries.values(), *self._resolved.values(), *_DIRECT.values())
        return {name: value for entry in entries for name, value in entry.secrets().items()}

    def _resolve(self, asked: str) -> ModelEntry:
        labelled = _LABEL.fullmatch(asked)
        name, label = (labelled["rest"], labelled["label"]) if labelled else (asked, None)
        plain, options = split_suffix(name)
        entry = self._entries.get(plain) or _direct(plain)
        if entry is None:
            raise UnknownModel(self._unknown(plain))
        if entry.is_scripted:
            Knobs().overridden(options)  # a typo is said now, not by a server later
            served = entry.model + name.removeprefix(plain)
            return entry.model_copy(update={"name": name, "model": served, "label": label})
        shown = entry.name + name.removeprefix(plain)
        chosen = entry.model_copy(update={"name": shown, "label": label or entry.label})
        return _with_options(chosen, options)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._entries, n=3, cutoff=0.5)
        offer = f"did you mean {' or '.join(near)}?" if near else "no known name is near it."
        listed = f"`orchestrator models list` shows all. {DIRECT_FORMS}."
        return f"no model named `{name}`; {offer} {listed}"


def load_roster(user_file: Path | None = None) -> Roster:
    """The built-in roster under the user's file: the given one, ``$ORCHESTRATOR_CONFIG``, or
    ``~/.config/orchestrator/models.toml`` where that exists. Raises BadConfig.
    """
    tables = _tables(BUILT_IN)
    sources = dict.fromkeys(tables, BUILT_IN)
    path = user_file or _configured()
    if path is not None:
        for name, fields in _tables(path).items():
            tables[name] = {**tables.get(name, {}), **fields}
            sources[name] = path
    return Roster({name: _entry(name, tables[name], sources[name]) for name in tables})


def _configured() -> Path | None:
    chosen = os.environ.get("ORCHESTRATOR_CONFIG")
    if chosen:
        return Path(chosen).expanduser()
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    path = home / "orchestrator" / "models.toml"
    return path if path.is_file() else None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    models: dict[str, dict[str, Any]] = {}


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    text = _text(path)
    try:
        document = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = f":{at[1]}" if at else ""
        raise BadConfig(f"{path}{line}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise BadConfig(_mistake(path, text, (), error)) from error
    if document.schema_version != 1:
        raise BadConfig(
            f"{path}: schema_version: {document.schema_version} is of a newer version of this "
            "product; this one reads 1"
        )
    return document.models


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: cannot be read as a roster: {error}") from error


def _entry(name: str, fields: Mapping[str, Any], path: Path) -> ModelEntry:
    try:
        entry = ModelEntry.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise BadConfig(_mistake(path, _text(path), ("models", name), error)) from error
    if entry.effort is not None and entry.effort not in entry.efforts:
        raise BadConfig(
            f"{path}: models.{name}.effort: `{entry.effort}` is none of its efforts "
            f"({', '.join(entry.efforts) or 'it has none'})"
        )
    if path != BUILT_IN and entry.is_scripted and name not in _tables(BUILT_IN):
        raise BadConfig(f"{path}: models.{name}.base_url: missing; say where the model is asked")
    return entry


def _mistake(path: Path, text: str, within: tuple[str, ...], error: ValidationError) -> str:
    first = error.errors()[0]
    place = [*within, *(str(part) for part in first["loc"])]
    line = _line(text, place)
    at = f"{path}:{line}" if line else f"{path}"
    field = ".".join(place)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], _fields(place), n=1, cutoff=0.5)
        offer = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_fields(place))}"
        return f"{at}: {field}: no such field; {offer}"
    return f"{at}: {field}: {first['msg']}"


def _fields(place: list[str]) -> list[str]:
    owner: type[BaseModel] = ModelEntry
    if len(place) == 1:
        owner = _File
    elif "rates" in place[:-1]:
        owner = Rates
    elif "prices" in place[:-1]:
        owner = Prices
    return [name for name in owner.model_fields if name != "name"]


def _line(text: str, place: list[str]) -> int | None:
    """The line where ``place`` is written: its key inside its table, else its table."""
    best: tuple[int, int] | None = None  # (depth that matched, line)
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+(.+?)\]+\s*(#.*)?$", line)
        key = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
        if header:
            table = _dotted(header[1])
            here = table
        elif key:
            here = table + _dotted(key[1])
        else:
            continue
        depth = min(len(here), len(place))
        if place[:depth] == here[:depth] and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _dotted(key: str) -> list[str]:
    parts = re.findall(r"\"([^\"]*)\"|'([^']*)'|([^.\s]+)", key)
    return [next(filter(None, part), "") for part in parts]


_DIRECT = {
    "openai/": ModelEntry(
        name="openai/",
        protocol="openai",
        model="",
        base_url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
    ),
    "anthropic/": ModelEntry(
        name="anthropic/",
        protocol="anthropic",
        model="",
        base_url="https://api.anthropic.com",
        key="ANTHROPIC_API_KEY",
    ),
    "openrouter/": ModelEntry(
        name="openrouter/",
        protocol="openai",
        model="",
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
    ),
}


def _direct(name: str) -> ModelEntry | None:
    for prefix, entry in _DIRECT.items():
        model = name.removeprefix(prefix)
        if name.startswith(prefix) and model:
            return entry.model_copy(update={"name": name, "model": model})
    url, _, model = name.partition("#")
    if url.startswith(("http://", "https://")) and model:
        shown = re.sub(r"//[^/@]*@", "//", name)  # a name is archived and shown: no credentials
        return ModelEntry(name=shown, protocol="openai", model=model, base_url=url)
    return None


def _with_options(entry: ModelEntry, options: list[tuple[str, str]]) -> ModelEntry:
    """Effort and sampling from a name's suffix. Raises BadConfig."""
    effort, sampling = entry.effort, dict(entry.sampling)
    for option, text in options:
        if option == "effort" and text in entry.efforts:
            effort = text
        elif option == "effort":
            known = ", ".join(entry.efforts) or "none; a roster entry can define some"
            raise BadConfig(f"model `{entry.name}`: no effort `{text}`; known: {known}")
        elif option in _SAMPLING:
            try:
                sampling[option] = _SAMPLING[option](text)
            except ValueError as error:
                raise BadConfig(f"model `{entry.name}`: {option} needs a number") from error
        else:
            known = ", ".join(("effort", *_SAMPLING))
            raise BadConfig(f"model `{entry.name}`: no option `{option}`; known: {known}")
    return entry.model_copy(update={"effort": effort, "sampling": sampling})
