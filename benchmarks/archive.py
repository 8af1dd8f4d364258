"""What the archive costs over raw JSON lines and zstd, measured in one run.

    python benchmarks/archive.py [--megabytes 64] [--attempts 2000] [--folder DIR]

Prints write throughput (durable and not), seal time, size, time of a page of a large transcript,
time of a full read, listing of many attempts, and peak memory. Figures depend on the disk: compare
the columns of one run, not runs.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import zstandard

from transcripts.events import ToolResult
from transcripts.keys import new_id
from transcripts.owner import this_process
from transcripts.records import Attempt, CellKey, Entrant, ModelIdentity
from transcripts.store import Archive

LINE = "def kernel(x, y, out): return out + x[{a}] * y[{b}]  # step {c} of the tile loop\n"
PAGE = 50


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def contents(megabytes: float) -> Iterator[str]:
    """Tool output as sessions have it: a few KiB each, part repeated, part new."""
    numbers = random.Random(1)
    written = 0.0
    while written < megabytes * 1e6:
        lines = numbers.randint(5, 80)
        text = "".join(
            LINE.format(a=numbers.random(), b=numbers.randint(0, 9), c=i) for i in range(lines)
        )
        written += len(text)
        yield text


def new_attempt(task: str = "kv-cache") -> Attempt:
    """A record with nothing special in it."""
    entrant = Entrant(
        model=ModelIdentity(name="glm-5", served_id="glm-5"),
        route="scripted",
        harness="loop",
        harness_version="1",
    )
    cell = CellKey(
        deck="rounds",
        task=task,
        task_digest=hashlib.sha256(task.encode()).hexdigest(),
        entrant_name=entrant.name,
        entrant_digest=entrant.digest,
    )
    return Attempt(attempt_id=new_id(), cell=cell, entrant=entrant, started_at=datetime.now(UTC))


def write_raw(path: Path, texts: list[str], *, durable: bool) -> None:
    """The baseline: a JSON line an event."""
    with path.open("wb") as file:
        for number, text in enumerate(texts):
            event = {"n": number, "kind": "tool_result", "at": time.time(), "text": text}
            file.write(json.dumps(event).encode() + b"\n")
            if durable:
                file.flush()
                os.fsync(file.fileno())


def write_ours(archive: Archive, texts: list[str], *, durable: bool) -> str:
    """The same as events of an attempt; its id."""
    attempt = archive.create(new_attempt())
    with attempt.open_writer(this_process(), durable=durable) as writer:
        for step, text in enumerate(texts):
            shown, blob = writer.put_text(text)
            writer.append(
                ToolResult,
                step=step,
                call_id="c",
                name="bash",
                status="ok",
                text=shown,
                blob=blob,
            )
    return attempt.id


def compress(path: Path) -> None:
    """The baseline's seal."""
    with path.open("rb") as source, path.with_suffix(".zst").open("wb") as target:
        zstandard.ZstdCompressor().copy_stream(source, target)


def say(name: str, ours: float, raw: float | None, unit: str) -> None:
    """One row."""
    compared = f"{raw:12.2f}   x{ours / raw:.2f}" if raw else f"{'':12}"
    print(f"{name:46}{ours:12.2f}{compared} {unit}")


def writing(folder: Path, archive: Archive, megabytes: float) -> str:
    """Write throughput, seal and size; the id of the large attempt."""
    few = list(contents(min(megabytes, 4)))
    many = list(contents(megabytes))
    raw = timed(lambda: write_raw(folder / "few.jsonl", few, durable=True))
    ours = timed(lambda: write_ours(archive, few, durable=True))
    say("durable write (fsync each)", len(few) / ours, len(few) / raw, "events/s")
    raw = timed(lambda: write_raw(folder / "raw.jsonl", many, durable=False))
    ids: list[str] = []
    ours = timed(lambda: ids.append(write_ours(archive, many, durable=False)))
    say("write", megabytes / ours, megabytes / raw, "MB/s")
    attempt = archive.find(ids[0])
    raw = timed(lambda: compress(folder / "raw.jsonl"))
    ours = timed(lambda: attempt.seal(attempt.record, {"solution.py": b"x"}))
    say("seal (raw: compress only)", ours, raw, "s")
    packed = sum(path.stat().st_size for path in attempt.path.rglob("*") if path.is_file())
    say("size", packed / 1e6, (folder / "raw.zst").stat().st_size / 1e6, "MB")
    return ids[0]


def reading(folder: Path, archive: Archive, attempt_id: str) -> None:
    """A random page, all events, verification."""
    attempt = archive.find(attempt_id)
    found = attempt.load_seal()
    assert found is not None
    numbers = random.Random(2)
    firsts = [numbers.randrange(found[0].events - PAGE) for _ in range(20)]
    pages = sorted(timed(lambda n=n: attempt.event_page(n, PAGE)) for n in firsts)  # type: ignore[misc]

    def raw_page() -> None:
        with (folder / "raw.zst").open("rb") as source:
            reader = zstandard.ZstdDecompressor().stream_reader(source)
            while reader.read(1 << 20):
                pass

    say(f"page of {PAGE} events, median", pages[10] * 1e3, timed(raw_page) * 1e3, "ms")
    say(f"page of {PAGE} events, worst of 20", pages[-1] * 1e3, None, "ms")
    say(
        "all events, parsed, chain followed",
        timed(lambda: sum(1 for _ in attempt.events())),
        None,
        "s",
    )
    say("verify", timed(attempt.verify), None, "s")


def listing(archive: Archive, attempts: int) -> None:
    """Many attempts: creation is not measured."""
    for number in range(attempts):
        archive.create(new_attempt(f"task-{number % 40}"))
    ours = timed(lambda: [attempt.record.attempt_id for attempt in archive.attempts()])
    paths = list(archive.path.rglob("attempt.json"))
    raw = timed(lambda: [json.loads(path.read_bytes()) for path in paths])
    say(f"list {attempts} attempts (raw: parse the JSON)", ours * 1e3, raw * 1e3, "ms")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--attempts", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        archive = Archive.open(folder / "archive", create=True)
        print(f"{'':46}{'archive':>12}{'raw':>12}   archive/raw")
        large = writing(folder, archive, options.megabytes)
        reading(folder, archive, large)
        listing(archive, options.attempts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    say("peak memory (holds the test data too)", peak, None, "MiB")


if __name__ == "__main__":
    main()
