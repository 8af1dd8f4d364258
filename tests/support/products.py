"""Tasks whose one output is a matrix product: their plans, and answers of formulas and modules.

Kernels are Triton's, in its interpreter.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from candidates import entries
from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.pipeline import RefereeGrader
from tasks.case import Case
from tasks.loader import execute, load_reference
from tasks.properties import all_cases
from tasks.spec import Task
from tasks.tensors import TensorReference, as_array
from transcripts.records import Grade

SEED = 2024
Formula = Callable[[Any, Mapping[str, Any]], Any]
"""The output of x and the weights, as tensors."""


class Products:
    """One task."""

    def __init__(self, task: Task) -> None:
        found = load_reference(task)
        assert isinstance(found, TensorReference)
        self.task, self.reference = task, found
        self.adapter = execute(task, "public/adapter.py", ("setup", "run"))

    @cache  # noqa: B019 - one object a test module
    def plan(self) -> list[Case]:
        """Nominal draws of the smoke shapes, the task's own cases, and generated ones."""
        nominal = []
        for shape in self.task.smoke:
            made = self.reference.make_inputs({**shape.dims, "dtype": shape.dtype}, SEED)
            params, calls = made["params"], made["calls"]
            expected = self.reference.reference(params, calls)
            nominal.append(Case(shape.name, "nominal", str(SEED), params, calls, expected))
        return [*nominal, *all_cases(self.task, self.reference, SEED, "quick")]

    def typed(self, case: Case) -> tuple[Mapping[str, Any], list[Any]]:
        """Params with weights, and x of each call, as tensors of their real dtypes."""
        held: Any = case.params["weights"]
        weights = self.reference.typed(held, self.task.interface.raw_weights)
        xs = [self.reference.typed(call)["x"] for call in case.calls]
        return {**case.params, "weights": weights}, xs

    def is_right(self, case: Case, answers: Sequence[Any]) -> bool:
        """Whether the answers of all calls are, as a grade has it."""
        triples = zip(answers, case.expected, case.calls, strict=True)
        return all(
            close.passed
            for answer, wanted, inputs in triples
            for close in compare_all(
                self.task, case, {"y": as_array(answer.bfloat16())}, wanted, inputs
            )
        )

    def by_formula(self, case: Case, formula: Formula) -> list[Any]:
        """Its answers."""
        params, xs = self.typed(case)
        return [formula(x, params["weights"]) for x in xs]

    def by_source(self, case: Case, source: str) -> list[Any]:
        """Those of a submission that is one file."""
        offered = self.offered(source)
        params, xs = self.typed(case)
        model = self.adapter.setup(offered, params)
        return [self.adapter.run(offered, model, {"x": x.clone()}) for x in xs]

    @cache  # noqa: B019 - one object a test module
    def offered(self, source: str) -> Any:
        """The entries of such a submission."""
        return entries(self.task, source)

    def passes(self, source: str, cases: Sequence[Case]) -> bool:
        """Whether a submission gets all of them right; the first that is wrong ends it."""
        with np.errstate(all="ignore"):
            return all(self.is_right(case, self.by_source(case, source)) for case in cases)

    def failed(self, source: str, cases: Sequence[Case]) -> list[str]:
        """Names of the cases that a submission gets wrong."""
        with np.errstate(all="ignore"):
            return [
                case.name for case in cases if not self.is_right(case, self.by_source(case, source))
            ]

    def graded(self, kind: str, **how: Any) -> Grade:
        """A grade of a shipped submission."""
        folder = self.task.folder / "submissions" / kind
        return RefereeGrader().grade(GradeRequest(self.task, folder, tier="quick", **how))
