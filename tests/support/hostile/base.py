"""What a hostile submission is made of: a body that runs in the first lines of ``row_sum``.

Each has the one word that its grade must end in. ``pass`` is right for what fails harmlessly:
there the body calls ``won`` for what it should not have reached, which ends in ``crash``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MEANS = '''
"""Means of attacks, beside the submission that uses them."""

import ctypes, errno, fcntl, gc, hashlib, json, mmap, os, resource, signal, socket, subprocess, sys
import threading, time
import numpy as np

LIBC = ctypes.CDLL(None, use_errno=True)
AT_CALLS = [0]


class Won(Exception):
    """It got what it should not have."""


def won(what):
    raise Won(repr(what))


def refused(step, *args):
    """A step that the kernel must refuse."""
    try:
        found = step(*args)
    except OSError:
        return
    won((getattr(step, "__name__", ""), args, found))


def syscall(*args):
    """A raw system call; a failure is an OSError."""
    words = [a if isinstance(a, (bytes, type(None))) else ctypes.c_long(a) for a in args]
    found = LIBC.syscall(*words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def first():
    """True once in a process."""
    AT_CALLS[0] += 1
    return AT_CALLS[0] == 1


def others():
    """All processes that can be seen, without this one."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]


def worker():
    """The worker's own object, by a walk over everything that lives."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "Worker":
            return thing


def ends():
    """The worker's ends of the wire: questions and answers."""
    return worker().questions, worker().answers


def answer(body):
    """Answer in the worker's name."""
    os.write(ends()[1], len(body).to_bytes(4, "big") + body)


def later(step, *args, wait=0.005):
    """Run a step in a thread, a moment after now."""
    threading.Thread(target=lambda: (time.sleep(wait), step(*args)), daemon=True).start()
'''

HONEST = "    return scale * x.sum(axis=1)\n"


@dataclass(frozen=True)
class Attack:
    """One hostile submission."""

    name: str
    word: str  # that its grade ends in
    tries: str  # a line on what it does
    files: Mapping[str, str]
    finding: str = ""  # mechanism of a probe that must fail
    options: Mapping[str, object] = field(default_factory=dict)  # of the grade
    limits: Mapping[str, float] = field(default_factory=dict)  # other than the zoo's
    needs_group: bool = False  # only a cgroup stops it


def attack(
    name: str,
    word: str,
    tries: str,
    body: str,
    head: str = "",
    *,
    finding: str = "",
    options: Mapping[str, object] | None = None,
    limits: Mapping[str, float] | None = None,
    needs_group: bool = False,
) -> Attack:
    """An attack whose ``row_sum`` starts with ``body``; ``head`` comes before it."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    text = f"from means import *\n{head}\n\ndef row_sum(x, scale):\n{lines}{HONEST}"
    files = {"row_sum.py": text, "means.py": MEANS.lstrip()}
    return Attack(name, word, tries, files, finding, options or {}, limits or {}, needs_group)


def whole(name: str, word: str, tries: str, files: str | Mapping[str, str]) -> Attack:
    """An attack that is a text of ``row_sum.py``, or files, as they are."""
    return Attack(name, word, tries, {"row_sum.py": files} if isinstance(files, str) else files)
