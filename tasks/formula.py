"""Roofline formulas, evaluated by an allow-list over the syntax tree: arithmetic and nothing else.

A formula names a shape's dims and ``itemsize`` (bytes of the shape's dtype), for example
``2 * B * T * D * itemsize``. Allowed are numbers, names, ``+ - * / // % **``, signs, parentheses
and the functions ``min``, ``max``, ``ceil``, ``floor`` and ``log2``. Everything is computed in
floating point, so that no formula can build a huge integer.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping

from tasks.errors import BadFormula

_MAX_CHARACTERS = 500
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
}


def evaluate(text: str, names: Mapping[str, float]) -> float:
    """The value of ``text`` with ``names`` filled in.

    Raises BadFormula for anything but arithmetic, an unknown name, or a result that is no finite
    number; the message says which part of the formula.
    """
    if len(text) > _MAX_CHARACTERS:
        raise BadFormula(f"a formula of {len(text)} characters; at most {_MAX_CHARACTERS}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = _value(tree.body, names)
    except (SyntaxError, RecursionError, MemoryError, TypeError, ValueError) as error:
        raise BadFormula(f"`{text}` is no formula: {error}") from error
    except ArithmeticError as error:
        raise BadFormula(f"`{text}` cannot be computed: {error}") from error
    if isinstance(value, complex) or not math.isfinite(value):
        raise BadFormula(f"`{text}` gives {value}, not a finite number")
    return float(value)


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return _named(name, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _UNARY[type(sign)](_value(operand, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return float(_FUNCTIONS[name](*(_value(argument, names) for argument in args)))
    raise BadFormula(f"`{ast.unparse(node)}` is not allowed in a formula: only arithmetic is")


def _named(name: str, names: Mapping[str, float]) -> float:
    try:
        return float(names[name])
    except KeyError:
        known = ", ".join(sorted(names))
        raise BadFormula(f"unknown name `{name}`; this shape has {known}") from None
