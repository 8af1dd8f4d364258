"""Read a round that was published as JSON, and add what is known about how it was run."""

import difflib
import json
import tomllib
from pathlib import Path

from pydantic import ValidationError

from orchestrator.boards.rounds import Round
from orchestrator.errors import UserError

_KNOWN = Path(__file__).parent / "published_rounds.toml"


class BadRound(UserError):
    """A round that cannot be read: says file, line or field, and what is wrong."""


def find_round(name: str, archive: Path) -> Path:
    """The file of a round: a path, or the name of one in ``rounds/`` of the archive or here.

    Raises BadRound with the nearest names.
    """
    given = Path(name)
    if given.suffix == ".json" or given.is_file():
        return given
    places = {
        p.stem: p
        for folder in (archive / "rounds", Path("rounds"))
        if folder.is_dir()
        for p in sorted(folder.glob("*.json"))
    }
    if name in places:
        return places[name]
    near = difflib.get_close_matches(name, sorted(places), n=3, cutoff=0.3)
    offer = f"did you mean {' or '.join(near)}?" if near else "give the path of its JSON file"
    raise BadRound(f"no round named `{name}` in {archive / 'rounds'} or ./rounds; {offer}")


def read_round(path: Path) -> Round:
    """The round in ``path``. Raises BadRound with one line a problem."""
    try:
        document = json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise BadRound(f"{path}: no such file; give the path of a round's JSON") from None
    except json.JSONDecodeError as error:
        raise BadRound(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadRound(f"{path}: cannot be read: {error}") from error
    try:
        return _with_known_conditions(Round.model_validate(document))
    except ValidationError as error:
        raise BadRound("\n".join(_problems(path, error))) from error


def _problems(path: Path, error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"]) or "(whole file)"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(problem["loc"][-1]), sorted(_fields()), n=1)
            message = f"unknown field; did you mean `{near[0]}`?" if near else "unknown field"
        lines.append(f"{path}: {field}: {message}")
    return lines


def _fields() -> set[str]:
    definitions = Round.model_json_schema().get("$defs", {}).values()
    return {*Round.model_fields, *(n for d in definitions for n in d.get("properties", {}))}


def _with_known_conditions(a_round: Round) -> Round:
    """The round with the conditions that its file leaves out and its sessions tell."""
    known = tomllib.loads(_KNOWN.read_text("utf-8")).get(a_round.round)
    if known is None or a_round.origin != "given":
        return a_round
    conditions = {
        name: tuple(str(each.get(model, "")) for model in a_round.models)
        for name, each in known["conditions"].items()
        if name not in a_round.conditions
    }
    return a_round.model_copy(
        update={
            "conditions": {**a_round.conditions, **conditions},
            "remarks": (*a_round.remarks, known["source"]),
        }
    )
