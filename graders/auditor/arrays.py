"""Arrays that NumPy makes of a shape alone."""

import ast

from graders.auditor.pysource import PySource

EMPTY = frozenset({"numpy.empty", "numpy.empty_like", "numpy.ndarray", "torch.empty"})


def may_be_size_zero(source: PySource, call: ast.Call) -> bool:
    """True when a dimension is written as 0: an empty result needs no filling."""
    return any(0 in _numbers(source, argument) for argument in call.args[:1])


def _numbers(source: PySource, node: ast.expr) -> list[object]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [value for part in parts for value in source.names.values(part)]
