"""The files of a submission that is in no archive, read once and bounded.

Links are not followed, and what tools derive is left behind. A file whose name the archive could
not keep is left out and said; a submission that cannot be read as a whole is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graders.launch import MAX_BYTES, MAX_FILES
from orchestrator.batch import NotReadable
from orchestrator.submission import digests
from sandboxes.names import is_derived, printable, why_not_kept
from transcripts.records import digest_of


@dataclass(frozen=True)
class HandIn:
    """Files by path, and what could not be taken."""

    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Equal to the ``submission_digest`` of its grade."""
        by_path = {one.path: one for one in digests(self.files)}
        ordered = sorted(by_path, key=lambda path: PurePosixPath(path).parts)
        return digest_of([by_path[path].model_dump(mode="json") for path in ordered])


def read_hand_in(path: Path) -> HandIn:
    """A folder's files, or one file. Raises NotReadable."""
    if path.is_symlink():
        raise NotReadable("it is a link, which is not followed")
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    total = 0
    try:
        for relative, source in [((path.name,), path)] if path.is_file() else _below(path, ()):
            if reason := why_not_kept(relative):
                left_out.append(f"{printable('/'.join(relative))}: {reason}")
                continue
            total += source.stat().st_size
            if len(files) >= MAX_FILES or total > MAX_BYTES:
                raise NotReadable(f"more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            files["/".join(relative)] = source.read_bytes()
    except OSError as error:
        where = printable(str(error.filename or path))
        raise NotReadable(f"it cannot be read: {where}: {error.strerror}") from error
    if path.is_file() and left_out:
        raise NotReadable(f"{left_out[0]}; rename it")
    return HandIn(files, tuple(left_out))


def _below(folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Path]]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or is_derived(path.name):
            continue
        if path.is_dir():
            yield from _below(path, (*parts, path.name))
        elif path.is_file():
            yield (*parts, path.name), path
