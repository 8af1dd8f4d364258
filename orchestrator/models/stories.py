"""What the built-in models say: scripted sessions, one answer a step.

A story is a pure function of the task and the step, so the server that plays it keeps no state and
a session can be resumed, repeated or replayed against a new server.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from orchestrator.models.knobs import Knobs
from orchestrator.models.story_tasks import TaskScript


@dataclass(frozen=True)
class Say:
    """One answer. ``calls`` are (tool, arguments as JSON text, valid or not)."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reasoning: str = ""


Story = Callable[[TaskScript, int, Knobs], Say]


def call(tool: str, **arguments: Any) -> tuple[str, str]:
    """A tool call with valid arguments."""
    return tool, json.dumps(arguments)


def hand_in(kind: str) -> Story:
    """Look around, write the submission's files, check, bench, submit."""

    def story(script: TaskScript, step: int, knobs: Knobs) -> Say:
        del knobs
        return _at(_hand_in(script, kind), step)

    return story


@cache
def _hand_in(script: TaskScript, kind: str) -> tuple[Say, ...]:
    return (
        Say("I will look around first.", (call("bash", command="ls -la"),), "What is here?"),
        Say("", (call("view", path="reference.py"),), "The reference says what is right."),
        *_writing(script, kind),
        Say("Is it right?", (call("check"),), "Checking before timing."),
        Say("Is it fast?", (call("bench"),), "The numbers decide."),
        Say("It is done.", (call("submit"),), "Nothing more to do."),
    )


def _writing(script: TaskScript, kind: str) -> tuple[Say, ...]:
    return tuple(
        Say(f"Writing {path}.", (call("write", path=path, content=content),), f"Now {path}.")
        for path, content in sorted(script.files(kind).items())
    )


def idle(script: TaskScript, step: int, knobs: Knobs) -> Say:
    """Talk and hand in nothing."""
    del knobs
    if step == 0:
        return Say(f"The task {script.name} is interesting. One would have to think about it.")
    return Say("I have thought about it, and I have nothing to add.")


def flaky(script: TaskScript, step: int, knobs: Knobs) -> Say:
    """The oracle's session with every kind of bad answer in between."""
    del knobs
    return _at(_flaky(script), step)


@cache
def _flaky(script: TaskScript) -> tuple[Say, ...]:
    good = _hand_in(script, "oracle")
    return (
        good[0],
        Say(),  # an empty reply
        good[1],
        Say("", (call("shell", cmd="ls"),)),  # an unknown tool
        Say("", (("bash", '{"command": "echo half'),)),  # arguments cut in the middle
        Say("", (call("bash"),)),  # a missing argument
        Say("Two at once.", (call("bash", command="pwd"), call("view", path="prompt.md"))),
        Say("I'm sorry, but I can't help with that."),
        *good[2:],
    )


def shaky(script: TaskScript, step: int, knobs: Knobs) -> Say:
    """The oracle's session with malformed calls in between, each alone, as models make them."""
    del knobs
    return _at(_shaky(script), step)


@cache
def _shaky(script: TaskScript) -> tuple[Say, ...]:
    good = _hand_in(script, "oracle")
    look = Say("Let me look.", (call("bash", command="pwd"),))
    unknown = Say("", (call("shell", cmd="ls"),))
    cut = Say("", (("bash", '{"command": "echo half'),))
    missing = Say("", (call("bash"),))
    return (*good[:2], unknown, look, cut, look, missing, *good[2:])


def longhaul(script: TaskScript, step: int, knobs: Knobs) -> Say:
    """``steps`` slow commands, each adding its number to a file; then hand in `naive`.

    A lost step is a missing line of progress.log, a repeated one a doubled line.
    """
    if step < knobs.steps:
        command = f"echo {step} >> progress.log"
        if knobs.circles:
            command = "echo again"
        if knobs.output_bytes:
            command += f"; head -c {knobs.output_bytes} /dev/zero | tr '\\0' x"
        if knobs.tool_s:
            command += f"; sleep {knobs.tool_s:g}"
        return Say("", (call("bash", command=command),), f"Step {step} of {knobs.steps}.")
    return _at(_hand_in(script, "naive")[2:], step - knobs.steps)


def _at(says: Sequence[Say], step: int) -> Say:
    return says[step] if step < len(says) else Say("I have handed in and am done.")


STORIES: Mapping[str, Story] = {
    "oracle": hand_in("oracle"),
    "naive": hand_in("naive"),
    "wrong": hand_in("wrong"),
    "cheater": hand_in("cheater"),
    "idle": idle,
    "flaky": flaky,
    "shaky": shaky,
    "longhaul": longhaul,
}


def without_silence(script: TaskScript, step: int, knobs: Knobs) -> Say:
    """`flaky` for a foreign harness, where an answer that calls no tool ends the session."""
    del knobs
    return _at([say for say in _flaky(script) if say.calls], step)


FOREIGN_STORIES: Mapping[str, Story] = {
    **STORIES,
    "flaky": without_silence,
}
"""The stories as foreign harnesses are told them."""

PLANNED_FAULTS: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    "flaky": {0: ("e429", "e500"), 2: ("drop", "cut"), 3: ("malformed", "e529")},
    "shaky": {0: ("e429",), 2: ("drop",)},  # what every harness must survive
}
"""Model -> step -> faults of the first tries, in their order; the next try is answered."""


def without_task(names: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> Say:
    """The answer where no task is recognised: use the one tool that is offered, or say so."""
    if len(tools) == 1:
        properties = tools[0]["parameters"].get("properties", {})
        arguments = {
            name: shape["enum"][0] for name, shape in properties.items() if "enum" in shape
        }
        return Say("", (call(tools[0]["name"], **arguments),))
    known = ", ".join(names) or "none"
    return Say(
        "I am a scripted model: I play sessions of the tasks that I know and nothing else. The "
        f"first user message holds the prompt of none of them (known: {known})."
    )
