"""Before a batch: does this machine measure as it did, on each device that the batch needs?"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from graders.errors import GraderVoid
from graders.qualification import LANGUAGES, qualify
from orchestrator.batch import Job
from orchestrator.errors import UserError


class NotQualified(UserError):
    """Grades that this machine made now would be void."""

    exit_code = 3


def qualified(
    jobs: Sequence[Job], isolation: str, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Once for each device, in the languages that the tasks accept; what was found, as data.

    Raises NotQualified, before anything is graded.
    """
    found = []
    for device in sorted({job.device for job in jobs}):
        known = LANGUAGES["cpu" if device == "cpu" else "cuda"]
        accepted = [job.languages for job in jobs if job.device == device]
        wanted = [name for name in known if any(not one or name in one for one in accepted)]
        try:
            qualification = qualify(device, isolation, wanted or None)
        except GraderVoid as error:
            raise NotQualified(
                f"{error}\nNothing was graded; --no-qualify grades without this"
            ) from error
        say(str(qualification))
        found.append(asdict(qualification))
    return found
