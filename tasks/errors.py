"""Errors of tasks and decks: always the author's or the caller's to mend, and they say how."""


class TaskError(Exception):
    """Base of everything that tasks and decks raise on purpose."""


class UnknownTask(TaskError):
    """No task of that name; the message offers the nearest names."""


class UnknownDeck(TaskError):
    """No deck of that name; the message offers the nearest names."""


class BrokenTask(TaskError):
    """A task folder that cannot be used: says file, line where known, field and mend."""


class BadFormula(TaskError):
    """A roofline formula that the safe evaluator refuses."""


class CannotScaffold(TaskError):
    """A new task's folder cannot be written as asked for."""
