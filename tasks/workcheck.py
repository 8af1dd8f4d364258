"""The check of a task's roofline formulas, by dimension.

They can be computed for every shape, no dim makes work less as it grows, and a floor is no more
than the work that is scored.
"""

from collections import Counter
from collections.abc import Iterator

from tasks.errors import BadFormula
from tasks.formula import evaluate
from tasks.rawfloats import itemsize
from tasks.spec import Shape, Task

_FLOORS = {"floor_flops": "flops", "floor_bytes": "bytes"}


def wrong_work(task: Task) -> Iterator[str]:
    """What is wrong with shapes and with formulas over them."""
    path = f"{task.folder / 'task.toml'}"
    shapes = (*task.shapes, *task.smoke)
    yield from _shapes(path, shapes)
    for shape in shapes:
        try:
            values = {field: _value(task, field, shape) for field in type(task.work).model_fields}
        except BadFormula as error:
            yield f"{path}: {error}; mend the formula"
            continue
        for field, value in values.items():
            if value < 0 or (value == 0 and field not in _FLOORS):
                yield f"{path}: work.{field}: shape {shape.name}: gives {value}; must be positive"
        for floor, score in _FLOORS.items():
            if values[floor] > values[score]:
                yield (
                    f"{path}: work.{floor}: shape {shape.name}: {values[floor]:.4g} is more than "
                    f"work.{score}, {values[score]:.4g}; a floor is the least work there is"
                )
        try:
            yield from _growth(task, path, shape)
        except BadFormula:
            continue  # a relation between dims that does not hold for the double


def _value(task: Task, field: str, shape: Shape) -> float:
    """Raises BadFormula with field and shape."""
    names = {**shape.dims, "itemsize": itemsize(shape.dtype)}
    try:
        return evaluate(getattr(task.work, field), names)
    except BadFormula as error:
        raise BadFormula(f"work.{field}: shape {shape.name}: {error}") from error


def _shapes(path: str, shapes: tuple[Shape, ...]) -> Iterator[str]:
    for name, count in Counter(shape.name for shape in shapes).items():
        if count > 1:
            yield f"{path}: shapes: {count} shapes named `{name}`; give each its own name"


def _growth(task: Task, path: str, shape: Shape) -> Iterator[str]:
    """Twice a dim is never less work, and twice all of them is more."""
    sizes = {dim for dim, size in shape.dims.items() if size > 1 or not _is_switch(task, dim)}
    for field in _FLOORS.values():
        text, here = getattr(task.work, field), _value(task, field, shape)
        for dim in sorted(sizes):
            if _value(task, field, _doubled(shape, {dim})) < here and not _divides(text, dim):
                yield (
                    f"{path}: work.{field}: shape {shape.name}: twice the {dim} gives less work; "
                    "mend the formula"
                )
        if sizes and _value(task, field, _doubled(shape, sizes)) <= here:
            yield (
                f"{path}: work.{field}: shape {shape.name}: does not grow with the dims; "
                f"write it with {', '.join(sorted(sizes))}"
            )


def _doubled(shape: Shape, dims: set[str]) -> Shape:
    twice = {dim: 2 * size if dim in dims else size for dim, size in shape.dims.items()}
    return shape.model_copy(update={"dims": twice})


def _is_switch(task: Task, dim: str) -> bool:
    """A dim that only ever is 0 or 1 switches something on: it is no size that work grows with."""
    return all(s.dims.get(dim, 0) in (0, 1) for s in (*task.shapes, *task.smoke))


def _divides(text: str, dim: str) -> bool:
    """Whether a formula divides by the dim: groups and pages make work less as they grow."""
    return f"/ {dim}" in text or f"/{dim}" in text
