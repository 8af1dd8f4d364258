"""What every kind promises about commands."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandboxes.errors import SandboxGone


def test_exit_codes_come_back(sandbox, shell):
    assert shell(sandbox, "exit 0").exit_code == 0
    assert shell(sandbox, "exit 42").exit_code == 42
    assert shell(sandbox, "kill -TERM $$").exit_code == 128 + 15


@pytest.mark.parametrize("argv", [["no-such-program"], ["./missing"]])
def test_a_missing_program_is_a_failed_command(sandbox, argv):
    result = sandbox.exec(argv, timeout_s=10)
    assert (result.exit_code, result.timed_out) == (127, False)
    assert b"No such file" in result.output


def test_a_command_that_cannot_be_run_is_a_failed_command(sandbox):
    sandbox.put("data.txt", b"no program")
    assert sandbox.exec(["./data.txt"], timeout_s=10).exit_code == 126
    assert sandbox.exec(["echo", "a\0b"], timeout_s=10).exit_code == 126
    assert sandbox.exec(["echo", "x" * (4 << 20)], timeout_s=10).exit_code == 126
    assert sandbox.exec(["echo", "still here"], timeout_s=10).output == b"still here\n"


def test_both_outputs_are_one_stream_in_order(sandbox, shell):
    result = shell(sandbox, "for i in 1 2 3; do echo o$i; echo e$i >&2; done")
    assert result.output == b"o1\ne1\no2\ne2\no3\ne3\n"


def test_binary_and_invalid_text_survive(sandbox, shell):
    assert shell(sandbox, r"printf '\377\000\001\303('").output == b"\xff\x00\x01\xc3("


def test_output_is_capped_and_both_ends_are_kept(start, shell):
    sandbox = start(limits={"output_bytes": 1000})
    result = shell(sandbox, "echo START; head -c 1000000 /dev/zero | tr '\\0' x; echo END")
    assert result.output.startswith(b"START\nxxx")
    assert result.output.endswith(b"xxxEND\n")
    assert result.dropped_bytes == len(b"START\nEND\n") + 1_000_000 - 1000
    assert f"{result.dropped_bytes} bytes left out".encode() in result.output
    assert len(result.output) < 1100


def test_output_at_the_limit_is_whole(start, shell):
    sandbox = start(limits={"output_bytes": 1000})
    result = shell(sandbox, "head -c 1000 /dev/zero | tr '\\0' x")
    assert (result.output, result.dropped_bytes) == (b"x" * 1000, 0)


def test_stdin_is_closed(sandbox, shell):
    assert shell(sandbox, "cat; echo $?").output == b"0\n"


def test_commands_start_in_the_workspace_or_below(sandbox, shell):
    sandbox.put("below/file", b"")
    assert shell(sandbox, "pwd").output.decode().strip() == sandbox.home
    assert shell(sandbox, "ls", cwd="below").output == b"file\n"
    assert shell(sandbox, "ls", cwd=f"{sandbox.home}/below").output == b"file\n"
    absent = shell(sandbox, "true", cwd="absent")
    assert absent.exit_code == 127
    assert b"absent" in absent.output


def test_environment_is_the_one_given(start, shell):
    sandbox = start(env={"PATH": "/usr/bin:/bin", "SHARED": "a b"})
    result = shell(sandbox, 'echo "$SHARED $OWN"', env={"OWN": "c\nd"})
    assert result.output == b"a b c\nd\n"
    assert shell(sandbox, 'echo "$SHARED$OWN"').output == b"a b\n"


def test_numpy_and_a_compiler_work(sandbox, shell):
    assert (
        shell(sandbox, "python3 -c 'import numpy; print(numpy.ones(3).sum())'").output == b"3.0\n"
    )
    sandbox.put("hello.c", b'#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n')
    result = shell(
        sandbox, "if command -v gcc >/dev/null; then gcc hello.c && ./a.out; else echo built; fi"
    )
    assert result.output == b"built\n"


def test_timeout_keeps_what_was_said(sandbox, shell):
    result = shell(sandbox, "echo before; sleep 300", timeout_s=0.5)
    assert (result.timed_out, result.exit_code, result.output) == (True, None, b"before\n")


def test_timeout_kills_the_whole_tree(sandbox, shell, survivors):
    result = shell(
        sandbox,
        """
        sleep 31311 &
        setsid sleep 31311 &
        (setsid bash -c 'trap "" TERM HUP INT; sleep 31311 & disown; exec sleep 31311' &)
        started() { cat /proc/[0-9]*/cmdline 2>/dev/null | tr -d '\\0' | grep -o sleep31311; }
        until [ $(started | wc -l) -ge 4 ]; do :; done
        echo all started
        sleep 300
        """,
        timeout_s=3,
    )
    assert result.timed_out
    assert result.output == b"all started\n"
    assert survivors(sandbox, 31311) == 0


def test_a_command_that_stopped_itself_times_out(sandbox, shell):
    assert shell(sandbox, "kill -STOP $$", timeout_s=0.5).timed_out
    assert shell(sandbox, "echo next").output == b"next\n"


def test_timeout_of_a_flood_of_output(sandbox, shell):
    result = shell(sandbox, "yes", timeout_s=0.5)
    assert result.timed_out
    assert result.dropped_bytes > 0
    assert shell(sandbox, "echo next").output == b"next\n"


def test_a_background_process_holds_nothing_up_and_goes_on(sandbox, shell):
    first = shell(sandbox, "(until [ -e go ]; do :; done; seq 100000; touch flag) & echo done")
    assert first.output == b"done\n"
    assert not first.timed_out
    assert shell(sandbox, "touch go; until [ -e flag ]; do :; done", timeout_s=30).exit_code == 0


def test_commands_of_several_threads_do_not_mix(sandbox, shell):
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda n: shell(sandbox, f"echo {n}; echo {n}"), range(20))
    assert [result.output for result in results] == [f"{n}\n{n}\n".encode() for n in range(20)]


def test_close_ends_a_running_command(sandbox, shell):
    sandbox.put("started", b"")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell, sandbox, "rm started; sleep 300", timeout_s=300)
        begun = threading.Event()
        while not begun.is_set():
            if not any(file.path == "started" for file in sandbox.snapshot()):
                begun.set()
        sandbox.close()
        with pytest.raises(SandboxGone):
            running.result(timeout=60)


def test_a_command_sees_no_descriptor_but_its_own(sandbox, shell):
    result = shell(sandbox, "python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'")
    assert result.output == b"['0', '1', '2', '3']\n"  # 3 reads the folder
