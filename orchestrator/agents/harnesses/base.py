"""What a harness is: how a vendor's CLI is installed, started without a person, and understood."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from orchestrator.errors import UserError
from transcripts.records import Usage

Dialect = Literal["openai", "openai-responses", "anthropic", "gemini"]

MARK = "== harness: "
"""Starts a line that the launch script writes between the CLI's own output."""

INSTRUCTIONS = (
    "\n\nYou work alone: nobody answers questions. Two commands help you in the shell: `check` "
    "says whether the submission is right, `bench` how fast it is. What the workspace holds when "
    "you end is what you hand in; end with a short final message."
)
"""Said after the task's prompt."""


class InstallBroken(UserError):
    """An installed harness lacks the program that it should have."""


@dataclass(frozen=True)
class Package:
    """A package of a registry, pinned."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str


@dataclass(frozen=True)
class Route:
    """Where a session's model is asked. ``base_url`` is what the dialect's clients take: with
    `/v1` for both of OpenAI's, the root for the others.
    """

    base_url: str
    token: str
    model: str


@dataclass(frozen=True)
class Launch:
    """How the CLI is started once. ``files`` are written below its HOME before."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    log_file: str | None = None  # below HOME, where the CLI's log is a file and not its output


@dataclass(frozen=True)
class NativeLog:
    """What the CLI says about its session. None is unsaid."""

    finished: bool  # it says that it came to its own end; an exit code alone proves nothing
    error: str = ""
    tool_calls: int = 0
    usage: Usage | None = None


class Harness(Protocol):
    """One vendor's CLI."""

    name: str
    package: Package
    dialect: Dialect
    whole_answers: bool
    """It gives up at the first stream that breaks, so the gateway passes only whole answers on."""

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """How to start it: installed at ``root`` on the host, visible as ``inside``."""
        ...

    def read(self, log: str) -> NativeLog:
        """What its log says."""
        ...


def program(root: Path, inside: str, pattern: str) -> str:
    """The path inside of the one program that ``pattern`` finds. Raises InstallBroken."""
    found = sorted(root.glob(pattern))
    if not found:
        raise InstallBroken(f"{root} has no {pattern}; install the harness again")
    return f"{inside}/{found[0].relative_to(root).as_posix()}"


def script(launch: Launch) -> list[str]:
    """The command that runs a launch in a HOME of its own and removes that afterwards.

    The stores of a session live in that HOME, so they die with it in every kind of sandbox. What
    the CLI writes to stderr comes after its output, so that it breaks no line of it.
    """
    lines = [
        'HOME="$(mktemp -d /tmp/harness.XXXXXX)" || exit 70',
        "export HOME",
        "trap 'rm -rf \"$HOME\"' EXIT",
    ]
    for path, text in launch.files.items():
        folder = path.rpartition("/")[0]
        lines.append(f'mkdir -p "$HOME"/{shlex.quote(folder)}')
        lines.append(f'printf %s {shlex.quote(text)} > "$HOME"/{shlex.quote(path)}')
    argv = " ".join(_word(word) for word in launch.argv)
    lines.append(f'printf %s {shlex.quote(launch.stdin)} > "$HOME/stdin"')
    lines.append(f'{argv} <"$HOME/stdin" 2>"$HOME/stderr"')
    lines.append("code=$?")
    if launch.log_file:
        lines.append(f"printf '\\n{MARK}log\\n'; cat \"$HOME\"/{shlex.quote(launch.log_file)}")
    lines.append(f"printf '\\n{MARK}stderr\\n'; tail -c 4000 \"$HOME/stderr\"")
    lines.append("exit $code")
    return ["/bin/sh", "-c", "\n".join(lines)]


def _word(word: str) -> str:
    """Quoted, but for a leading `$HOME`."""
    rest = word.removeprefix("$HOME")
    return f'"$HOME"{shlex.quote(rest)}' if rest != word else shlex.quote(word)


def log_of(output: bytes) -> tuple[str, str]:
    """The CLI's log and the end of its stderr, from the output of a launch."""
    text, _, stderr = output.decode("utf-8", "replace").partition(f"\n{MARK}stderr\n")
    said, _, from_file = text.partition(f"\n{MARK}log\n")
    return from_file or said, stderr


def json_lines(log: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a log, one a line; other lines are the CLI's chatter."""
    for line in log.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue  # torn by a kill: what it would have said is missing then


def total(usages: Iterable[Usage]) -> Usage | None:
    """The sum; None of nothing."""
    known = list(usages)
    return sum(known, Usage()) if known else None
