import os
import subprocess
import sys

from transcripts.owner import is_live, this_process


def _owner_of_a_process_that_ended() -> str:
    program = "from transcripts.owner import this_process; print(this_process())"
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_this_process_lives() -> None:
    assert is_live(this_process())


def test_a_process_that_ended_does_not() -> None:
    assert not is_live(_owner_of_a_process_that_ended())


def test_a_zombie_does_not_live() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, this_process().encode())
        os._exit(0)
    os.close(write)
    owner = os.read(read, 200).decode()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and not collected
    assert not is_live(owner)
    os.waitpid(pid, 0)
    os.close(read)


def test_a_later_process_with_the_same_pid_is_not_the_owner() -> None:
    host, pid, ticks, boot = this_process().split("-")
    assert not is_live(f"{host}-{pid}-{int(ticks) + 1}-{boot}")


def test_nothing_survives_a_reboot() -> None:
    host, pid, ticks, _ = this_process().split("-")
    assert not is_live(f"{host}-{pid}-{ticks}-000000000000")


def test_another_host_cannot_be_asked() -> None:
    _, pid, ticks, boot = this_process().split("-")
    assert is_live(f"ffffffffffff-{pid}-{int(ticks) + 1}-{boot}")


def test_unknown_forms_are_left_to_expiry() -> None:
    assert is_live("somebody")
