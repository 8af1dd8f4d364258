"""Markdown of a round: what is unfair, the scoreboard, then each task with its evidence."""

from collections.abc import Iterator, Sequence

from orchestrator.boards.markdown import escape, table
from orchestrator.boards.rounds import (
    Evidence,
    Pair,
    Round,
    RoundTask,
    Showing,
    is_tie,
    mismatches,
    pairs,
    task_winner,
)
from orchestrator.boards.wording import TIE

_MUST_BE_EQUAL = (
    "hardware",
    "toolchain",
    "task digest",
    "budget",
    "effort",
    "network",
    "interventions",
)
NONE = "–"


def round_markdown(a_round: Round) -> str:
    """The whole round; the same round gives the same bytes."""
    parts = [
        [f"# Round: {escape(' against '.join(a_round.models))} ({escape(a_round.round)})"],
        list(_fairness(a_round)),
        ["## Scoreboard", "", *_scoreboard(a_round)],
        *(["", *_task(a_round, task, result)] for task, result in a_round.tasks.items()),
    ]
    return "\n\n".join("\n".join(part).strip("\n") for part in parts if part) + "\n"


def _fairness(a_round: Round) -> Iterator[str]:
    """Everything unfair or unknown stands above the scores."""
    for line in a_round.unfair:
        yield f"- **Not comparable:** {escape(line)}"
    unknown = [name for name in _MUST_BE_EQUAL if name not in a_round.conditions]
    if a_round.origin == "given" and unknown:
        yield f"- Not stated, so not checked: {', '.join(unknown)}."
    yield from (f"- {escape(remark)}" for remark in a_round.remarks)
    if a_round.note:
        yield f"- {escape(a_round.note)}"
    yield from (f"- **Mismatch:** {escape(line)}" for line in mismatches(a_round))


def _scoreboard(a_round: Round) -> Iterator[str]:
    two = len(a_round.models) == 2
    header = ["task", *map(escape, a_round.models), "winner", *(["margin"] if two else [])]
    all_pairs = pairs(a_round)
    rows = [
        [
            escape(task),
            *(_points(result, model) for model in range(len(a_round.models))),
            _winner(a_round, result),
            *([_margin(all_pairs[0], task, result)] if two else []),
        ]
        for task, result in a_round.tasks.items()
    ]
    if two:
        rows.append(_average_row(all_pairs[0]))
    yield from table(header, rows)
    yield ""
    if any(f" {TIE}" in row[-1] for row in rows):
        yield f"- {TIE} statistical tie: the 95% intervals overlap"
    yield from (f"- {line}" for pair in all_pairs for line in _pair(pair, len(a_round.tasks)))


def _margin(pair: Pair, task: str, result: RoundTask) -> str:
    return signed(pair.margins[task]) + (f" {TIE}" if is_tie(result, 0, 1) else "")


def _points(result: RoundTask, model: int) -> str:
    """The overall; the mean of its dimensions beside it where it says something else."""
    overall, computed = result.overall[model], result.computed(model)
    if overall is None or computed is None or points(overall) == points(computed):
        return points(overall)
    return f"{points(overall)} (dimensions: {points(computed)})"


def _average_row(pair: Pair) -> list[str]:
    if pair.averages is None or pair.rounded is None:
        return ["**average**", NONE, NONE, NONE, NONE]
    cells = [
        f"**{rounded}** ({average:.2f})"
        for rounded, average in zip(pair.rounded, pair.averages, strict=True)
    ]
    return ["**average**", *cells, f"**{escape(pair.winner or 'draw')}**", _average_margin(pair)]


def _average_margin(pair: Pair) -> str:
    rounded, exact = signed(pair.rounded_margin), signed(pair.average_margin, digits=2)
    return rounded if rounded == exact else f"{rounded} (unrounded {exact})"


def _pair(pair: Pair, tasks: int) -> Iterator[str]:
    if pair.averages is None:
        yield f"{escape(pair.first)} against {escape(pair.second)}: no task has points of both."
        return
    verdict = f"**{escape(pair.winner)}** wins" if pair.winner else "a draw"
    first, second = pair.tasks_won
    drawn = f", {pair.drawn} drawn" if pair.drawn else ""
    yield (
        f"{escape(pair.first)} against {escape(pair.second)}: {verdict}, "
        f"tasks won {first} to {second}{drawn}, average margin {_average_margin(pair)}."
    )
    compared = sum(margin is not None for margin in pair.margins.values())
    if compared < tasks:
        yield f"Averages are over the {compared} of {tasks} tasks that both have points on."


def _task(a_round: Round, task: str, result: RoundTask) -> Iterator[str]:
    yield f"## {escape(task)}"
    if result.dimensions:
        yield ""
        yield from _dimension_table(a_round, result)
    leads = list(_leads(a_round, result))
    yield from ["", *leads] if leads else []
    for model, showing in zip(a_round.models, result.showings, strict=False):
        yield from _showing(model, showing)
    if result.swings:
        yield from ("", "### What made it close", "")
        yield from (f"- {escape(line)}" for line in result.swings)


def _dimension_table(a_round: Round, result: RoundTask) -> Iterator[str]:
    best, hybrid = result.hybrid()
    rows = []
    for name, values in result.dimensions.items():
        nobody = all(value is None for value in values)
        shown = ["not judged" if nobody else points(value) for value in values]
        rows.append([escape(name), *shown, _best(a_round, best.get(name))])
    overall = [f"**{points(value)}**" for value in result.overall]
    rows.append(["**overall**", *overall, points(hybrid)])
    yield from table(["dimension", *map(escape, a_round.models), "ideal hybrid"], rows)


def _leads(a_round: Round, result: RoundTask) -> Iterator[str]:
    for model, leads in zip(a_round.models, result.leads(), strict=True):
        if leads:
            largest_first = sorted(leads.items(), key=lambda lead: (-lead[1], lead[0]))
            dimensions = ", ".join(f"{escape(name)} {signed(by)}" for name, by in largest_first)
            yield f"- {escape(model)} leads in {dimensions}"


def _best(a_round: Round, best: tuple[float, tuple[int, ...]] | None) -> str:
    if best is None:
        return NONE
    value, holders = best
    if len(holders) == len(a_round.models):
        return points(value)
    return f"{points(value)} {escape(', '.join(a_round.models[i] for i in holders))}"


def _showing(model: str, showing: Showing) -> Iterator[str]:
    yield from ("", f"### {escape(model)}", "")
    yield f"- attempt {escape(showing.attempt_id or 'none')}: {escape(showing.standing)}"
    if showing.milliseconds is not None:
        roof = f", {showing.roofline:.1%} of the roofline" if showing.roofline is not None else ""
        yield f"- time: {showing.milliseconds:.3g} ms{roof}"
    for title, found in (
        ("Critical defects", showing.defects),
        ("Strengths", showing.strengths),
        ("Weaknesses", showing.weaknesses),
        ("Not measurable", showing.not_measured),
    ):
        yield from _evidence(title, found)
    if showing.not_judged:
        yield f"- Not judged: {escape(', '.join(showing.not_judged))}"


def _evidence(title: str, found: Sequence[Evidence]) -> Iterator[str]:
    if found:
        yield f"- {title}:"
        for one in found:
            yield f"    - {escape(one.item)} ({escape(one.dimension)}): {escape(one.figure)}"


def _winner(a_round: Round, result: RoundTask) -> str:
    if None in result.overall:
        return NONE
    place = task_winner(result.overall)
    return "draw" if place is None else escape(a_round.models[place])


def points(value: float | None) -> str:
    """Points with one decimal where they have one."""
    return NONE if value is None else f"{round(value, 1):g}"


def signed(value: float | None, digits: int = 1) -> str:
    """A margin with its sign; none at all is ``0``."""
    if value is None:
        return NONE
    rounded = round(value, digits)
    return f"{rounded:+g}" if rounded else "0"
