"""Walks over syntax trees that cannot be made endless: a submission picks the shape of its tree.

Checks look at parts of a tree again and again, which is cheap for what people write and need not be
for what somebody writes against the auditor. Every walk is charged to the meter of the check.
"""

import ast
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_VISITS = 500_000
"""Nodes that one check may look at, in half a second; what is shipped takes a few percent."""


class TooMuchWork(Exception):
    """A check has looked at as much as it may."""


_left: ContextVar[list[int]] = ContextVar("visits left to the check")


@contextmanager
def metered(visits: int = MAX_VISITS) -> Iterator[None]:
    """Walks inside the block raise TooMuchWork once they have seen so many nodes together."""
    token = _left.set([visits])
    try:
        yield
    finally:
        _left.reset(token)


def charge(visits: int) -> None:
    """Count work against the meter, where there is one. Raises TooMuchWork."""
    left = _left.get(None)
    if left is not None:
        left[0] -= visits
        if left[0] < 0:
            raise TooMuchWork


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, charged."""
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        waiting.extend(ast.iter_child_nodes(node))
        charge(1)
        yield node
