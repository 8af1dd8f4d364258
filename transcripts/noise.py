"""Comparing what a tool said then with what it says now: what may differ between two runs.

Known noise: times, durations, owners in listings, memory addresses, folders, temporary names,
process ids, progress bars and terminal colours. Everything else must be equal, to the last digit.
"""

import re
from typing import Literal, NamedTuple


class _Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    shown: str


_UNITS = r"(?:ns|us|µs|μs|ms|s|secs?|seconds?|mins?|minutes?|hours?|h)"
_RULES = (
    _Rule("colour", re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"), ""),
    # What a carriage return overwrote was never to be read.
    _Rule("progress", re.compile(r"[^\r\n]*\r(?!\n|\Z)"), ""),
    _Rule(
        "progress",
        re.compile(r"^.*(?:\d{1,3}%\s*\|.*\||\[[=#>.\- ]{5,}\]|[█▏▎▍▌▋▊▉━╸╺]{3,}).*$", re.M),
        "<progress>",
    ),
    # `ls -l`: each session has a user of its own, and files have the times of their making.
    _Rule(
        "listing",
        re.compile(
            r"^([bcdlps-][rwxsStT-]{9}[.+@]?) +(\d+) +\S+ +\S+ +(\d+) +"
            r"\w{3} +\d{1,2} +(?:\d\d:\d\d|\d{4}) ",
            re.M,
        ),
        r"\1 \2 \3 ",
    ),
    _Rule(
        "time",
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
            r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:\w{3} +\d{1,2}|\d{1,2} \w{3}) +"
            r"[\d: ]*\d(?: [AP]M)?(?: [A-Z]{3,4})?(?: \d{4})?"
            r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"
        ),
        "<time>",
    ),
    _Rule(
        "duration",
        re.compile(
            rf"(?<![\w.])\d+m ?\d+(?:\.\d+)?s\b"
            rf"|(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)? ?{_UNITS}\b"
        ),
        "<duration>",
    ),
    # 32-bit constants are shorter; what is longer is a pointer.
    _Rule("address", re.compile(r"\b0x[0-9a-fA-F]{9,16}\b"), "<address>"),
    _Rule(
        "temporary name",
        re.compile(
            r"/(?:tmp|var/tmp|var/folders/\w+/\w+/T)/[^\s'\":,;()\[\]/]+"
            r"|\btmp[a-z0-9_]{8}\b"
        ),
        "<temporary>",
    ),
    _Rule(
        "path",
        re.compile(r"(?<![\w.~)/])(?:\.{0,2}|~)/(?:[\w.@+\-]+/)+(?=[\w.<@+\-])"),
        "<folder>/",
    ),
    _Rule("process id", re.compile(r"\b(?:pid|PID|process)[ =:#]{1,2}\d+"), "<process>"),
    _Rule("white space", re.compile(r"[ \t\r]+$", re.M), ""),
)


class Comparison(NamedTuple):
    """How two texts relate; where they diverged, the first line that differs and both sides."""

    kind: Literal["identical", "equivalent", "diverged"]
    noise: tuple[str, ...] = ()  # which known noise differs
    line: int | None = None  # 1-based
    recorded: str | None = None
    actual: str | None = None

    @property
    def same(self) -> bool:
        """True when nothing but known noise differs."""
        return self.kind != "diverged"


def compare(recorded: str, actual: str) -> Comparison:
    """Compare a recorded result with an actual one."""
    if recorded == actual:
        return Comparison("identical")
    then, now, noise = recorded, actual, []
    for rule in _RULES:
        if rule.pattern.findall(then) != rule.pattern.findall(now):
            noise.append(rule.name)
        then, now = rule.pattern.sub(rule.shown, then), rule.pattern.sub(rule.shown, now)
    kinds = tuple(dict.fromkeys(noise))
    if then.strip() == now.strip():
        return Comparison("equivalent", kinds or ("white space",))
    return _first_difference(then.strip(), now.strip(), kinds)


def _first_difference(then: str, now: str, noise: tuple[str, ...]) -> Comparison:
    left, right = then.split("\n"), now.split("\n")
    line = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    return Comparison(
        "diverged",
        noise,
        line + 1,
        left[line] if line < len(left) else None,
        right[line] if line < len(right) else None,
    )
