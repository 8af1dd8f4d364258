"""The size of a workspace, which the kernel caps in every kind where images can be mounted."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes import volume
from sandboxes.errors import SandboxGone, SandboxStartFailed

ROOT = Path(__file__).parents[2]
CAP = 32 << 20

pytestmark = pytest.mark.skipif(
    volume.why_not_limited() is not None, reason=f"not capped here: {volume.why_not_limited()}"
)


@pytest.fixture
def small(start):
    return start(limits={"disk_bytes": CAP})


def on_the_host(state: Path) -> int:
    """Bytes that a session's folder takes of the host's disk."""
    return sum(path.lstat().st_blocks * 512 for path in state.rglob("*"))


def attached() -> set[str]:
    """The files behind all loop devices of this machine."""
    return {path.read_text().strip() for path in Path("/sys/block").glob("loop*/loop/backing_file")}


def test_a_fast_writer_meets_a_full_disk_and_the_session_goes_on(small, shell, tmp_path):
    result = shell(small, "cat /dev/zero > big & cat /dev/zero > big2 & wait; ls")
    assert b"No space left on device" in result.output
    assert on_the_host(tmp_path / "state") <= CAP
    assert shell(small, "head -c 1000000 /dev/zero > more").exit_code != 0
    assert shell(small, "rm big big2; echo more > more; cat more").output == b"more\n"


def test_the_owners_files_do_not_fit_either_and_what_was_there_stays(small, shell):
    small.put("kept", b"before")
    shell(small, "cat /dev/zero > big")
    with pytest.raises(OSError) as raised:
        small.put("kept", b"x" * (1 << 20))
    assert raised.value.errno == errno.ENOSPC
    assert small.get("kept") == b"before"
    assert [file.path for file in small.snapshot()] == ["kept"]


def test_sparse_files_count_by_what_they_hold(small, shell, tmp_path):
    assert shell(small, "truncate -s 2G sparse; stat -c %s sparse").output == b"2147483648\n"
    filled = "dd if=/dev/zero of=sparse bs=1M seek=500 count=100 conv=notrunc"
    assert b"No space left on device" in shell(small, filled).output
    assert on_the_host(tmp_path / "state") <= CAP


def test_many_small_files_come_to_an_end(start, shell, tmp_path):
    small = start(limits={"disk_bytes": CAP})
    code = "import itertools\nfor n in itertools.count(): open(f'd/{n}', 'w').close()"
    result = shell(small, f'mkdir d; python3 -c "{code}"; ls -U d | wc -l', timeout_s=120)
    assert b"No space left on device" in result.output
    assert 1000 < int(result.output.split()[-1]) < 100_000
    assert on_the_host(tmp_path / "state") <= CAP
    assert shell(small, "rm -r d; echo on > on; cat on").output == b"on\n"


def test_deleted_files_count_while_they_are_open(small, shell):
    holder = "exec 3> big; cat /dev/zero >&3; rm big; head -c 1000000 /dev/zero > y; sleep 300"
    held = shell(small, holder, timeout_s=5)
    assert held.timed_out
    assert held.output.count(b"No space left on device") == 2
    assert shell(small, "head -c 20000000 /dev/zero > z && stat -c %s z").output == b"20000000\n"


def test_a_full_workspace_can_be_gone_on_with(start, shell):
    first = start(limits={"disk_bytes": CAP})
    shell(first, "echo kept > kept; cat /dev/zero > big")
    first.close()
    second = start(limits={"disk_bytes": CAP})
    assert shell(second, "cat kept; rm big; echo more > more; cat more").output == b"kept\nmore\n"


def test_each_session_has_its_own_disk(start, shell, tmp_path):
    one = start(session_id="one", state_dir=tmp_path / "one", limits={"disk_bytes": CAP})
    two = start(session_id="two", state_dir=tmp_path / "two", limits={"disk_bytes": CAP})
    shell(one, "cat /dev/zero > big")
    assert shell(two, "head -c 20000000 /dev/zero > z && stat -c %s z").output == b"20000000\n"


def test_nothing_is_mounted_on_the_host_and_no_device_is_left(small, tmp_path):
    image = str(tmp_path / "state" / volume.IMAGE)
    assert image in attached()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert list((tmp_path / "state" / volume.FOLDER).iterdir()) == []
    small.close()
    with Path(image).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the device has it until the last process is gone
        assert image not in attached()


OWNER = """
import sys
from pathlib import Path
from sandboxes.base import Limits, SandboxSpec
from sandboxes.registry import provider

kind, state, cap = sys.argv[1:]
limits = Limits(disk_bytes=int(cap))
sandbox = provider(kind).start(SandboxSpec("killed", "an-owner", Path(state), limits=limits))
sandbox.put("put", b"by the owner")
script = "echo written > written; (while :; do echo more >> growing; done) & sleep 0.1; echo ready"
print(sandbox.exec(["bash", "-c", script], timeout_s=30).output.decode(), flush=True)
sandbox.exec(["sleep", "300"], timeout_s=3600)
"""


def test_the_workspace_is_intact_after_its_owner_was_killed(kind, start, shell, tmp_path):
    command = [sys.executable, "-c", OWNER, kind, str(tmp_path / "state"), str(CAP)]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    again = start(session_id="killed", limits={"disk_bytes": CAP})
    assert again.get("put") == b"by the owner"
    assert shell(again, "cat written; sort -u growing").output == b"written\nmore\n"


def test_an_image_is_never_mounted_twice(small, start, monkeypatch):
    monkeypatch.setattr(volume, "_LEAVE_S", 0.05)
    with pytest.raises(SandboxStartFailed, match="mounted elsewhere"):
        start(limits={"disk_bytes": CAP})
    small.put("still", b"there")
    assert small.get("still") == b"there"


def test_what_was_on_the_disk_when_the_machine_stopped_is_repaired(small, start, shell, tmp_path):
    shell(small, "echo kept > kept; sync; mkdir d; for n in $(seq 200); do echo $n > d/$n; done")
    (tmp_path / "copy").mkdir()  # as the host's disk has it, in the middle of things
    shutil.copy(tmp_path / "state" / volume.IMAGE, tmp_path / "copy" / volume.IMAGE)
    tables = ["dumpe2fs", "-h", str(tmp_path / "copy" / volume.IMAGE)]
    assert "needs_recovery" in subprocess.check_output(tables, text=True)
    again = start(state_dir=tmp_path / "copy", limits={"disk_bytes": CAP})
    assert shell(again, "cat kept; echo more > more; cat more").output == b"kept\nmore\n"


def test_a_session_of_a_plain_folder_goes_on_in_it(start, shell, tmp_path):
    folder = tmp_path / "state" / volume.FOLDER
    folder.mkdir(parents=True)
    (folder / "kept").write_text("kept\n")
    sandbox = start()
    assert shell(sandbox, "cat kept; echo more > more").output == b"kept\n"
    assert (folder / "more").read_text() == "more\n"


def test_whoever_cannot_mount_is_told_that_nothing_is_capped(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    why = volume.why_not_limited.__wrapped__()
    assert "only root" in why
    monkeypatch.setattr(volume, "why_not_limited", lambda: why)
    assert volume.volume_in(tmp_path, CAP).device == ""
    assert not (tmp_path / volume.IMAGE).exists()


@pytest.fixture
def full_soon(tmp_path):
    """A disk of the host of 96 MB, for two sessions that may have 80 MB each."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_what_finished_before_the_hosts_disk_was_full_is_intact_when_there_is_space(
    start, shell, full_soon
):
    limits = {"disk_bytes": 80 << 20}
    first = start(session_id="one", state_dir=full_soon / "one", limits=limits)
    second = start(session_id="two", state_dir=full_soon / "two", limits=limits)
    second.put("put", b"before")
    for number in range(50):
        assert shell(second, f"echo {number} | tee -a steps").exit_code == 0
    assert shell(first, "head -c 60000000 /dev/zero > big").exit_code == 0
    with pytest.raises(SandboxGone, match="does not take"):
        shell(second, "head -c 60000000 /dev/zero > big; echo 50 >> steps")
    second.close()
    subprocess.run(["mount", "-o", "remount,size=400m", full_soon], check=True)
    again = start(session_id="two", state_dir=full_soon / "two", limits=limits)
    assert again.get("put") == b"before"
    assert again.get("steps").split()[:50] == [str(number).encode() for number in range(50)]
    assert shell(again, "rm -f big; echo more > more; cat more").output == b"more\n"


def test_a_disk_with_no_room_at_all_gets_a_plain_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(volume, "SMALLEST_BYTES", 1 << 60)
    assert volume.volume_in(tmp_path / "state", CAP).device == ""
    assert not (tmp_path / "state" / volume.IMAGE).exists()
