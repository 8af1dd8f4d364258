"""Whose git history a command reads: a repository that the session made itself is its own."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from graders.auditor.shell import Command
from sandboxes.base import WORKSPACE

_READS = frozenset(
    {"log", "show", "reflog", "stash", "checkout", "cat-file", "diff", "blame", "fsck"}
)
_MIXING = frozenset({"clone", "fetch", "pull", "bundle", "worktree", "am", "apply"})
"""Verbs that bring history of others into a repository."""
_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})


@dataclass(frozen=True)
class GitCall:
    """One git command: its verb, the folder that it works in and the words after the verb."""

    verb: str
    folder: str | None  # None: a repository is named by other means (--git-dir, GIT_DIR)
    rest: tuple[str, ...]


@dataclass
class Repositories:
    """Folders in which the session itself began a history; one walk of a transcript fills it."""

    _own: dict[str, bool] = field(default_factory=dict)  # root: made here, and only here

    def note(self, call: GitCall, said: str) -> None:
        """A command that worked, and what it printed: ``init`` of an old repository is no start."""
        if call.folder is None:
            return
        folder = _inside(call.folder, _last_path(call)) if call.verb in _PLACED else call.folder
        if call.verb == "init":
            fresh = "Reinitialized existing" not in said
            self._own.setdefault(folder, fresh)
        elif call.verb in _MIXING:
            self._own[folder if call.verb == "clone" else self._root(folder) or folder] = False

    def is_own(self, call: GitCall) -> bool:
        """True when what the command reads was committed by this session alone."""
        root = self._root(call.folder) if call.folder is not None else None
        return root is not None and self._own[root]

    def _root(self, folder: str) -> str | None:
        """The nearest known repository at or above ``folder``."""
        while True:
            if folder in self._own:
                return folder
            above = posixpath.dirname(folder)
            if above == folder:
                return None
            folder = above


_PLACED = frozenset({"init", "clone"})


def git_calls(commands: list[Command]) -> Iterator[tuple[Command, GitCall | None]]:
    """The commands of one line; those of git with the folder that ``cd`` has led to."""
    folder = ""
    for command in commands:
        if command.name == "cd":
            folder = _inside(folder, command.words[1] if len(command.words) > 1 else "~")
        yield command, _parsed(command, folder) if command.name == "git" else None


def reads_history(call: GitCall) -> bool:
    """True for verbs that show what was committed."""
    return call.verb in _READS


def _parsed(command: Command, folder: str) -> GitCall:
    words = iter(command.words[1:])
    place: str | None = folder
    for word in words:
        if word.startswith("--git-dir"):
            place = None
        if word in _WITH_VALUE:
            value = next(words, "")
            place = _inside(place, value) if word == "-C" and place is not None else place
        elif not word.startswith("-"):
            return GitCall(word, place, tuple(words))
    return GitCall("", place, ())


def _last_path(call: GitCall) -> str:
    """Where ``init`` or ``clone`` makes a repository, relative to where it runs."""
    paths = [word for word in call.rest if not word.startswith("-")]
    if call.verb == "init":
        return paths[-1] if paths else ""
    if len(paths) > 1:
        return paths[-1]
    return posixpath.basename(paths[0].rstrip("/")).removesuffix(".git") if paths else ""


def _inside(folder: str, path: str) -> str:
    """``path`` seen from ``folder``; the workspace itself is the empty text."""
    whole = posixpath.normpath(posixpath.join(WORKSPACE, folder, path))
    if whole == WORKSPACE:
        return ""
    return whole.removeprefix(WORKSPACE + "/")
