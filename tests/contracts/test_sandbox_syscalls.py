"""The system calls that the isolating kinds deny: the same ones in each, called for real."""

import errno
import json
import platform

import pytest

from sandboxes.syscalls import LAST, denied_numbers

pytestmark = [
    pytest.mark.parametrize(
        "kind", [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"], indirect=True
    ),
    pytest.mark.skipif(not denied_numbers(), reason=f"no table for {platform.machine()}"),
]

CALLS = """
import ctypes, errno, json, os, signal
libc = ctypes.CDLL(None, use_errno=True)

def error_of(number, *arguments):
    '''Of a call in a process of its own: some never return, or change their caller.'''
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        words = [ctypes.c_long(word) for word in arguments]
        failed = libc.syscall(ctypes.c_long(number), *words) < 0
        os.write(writer, str(ctypes.get_errno() if failed else 0).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 20)
    os.close(reader)
    return int(said or -1)

print(json.dumps([error_of(*call) for call in CALLS]))
"""


@pytest.fixture
def errors_of(sandbox):
    """The error numbers of calls inside, each a number and its arguments; 0 for success."""

    def run(calls):
        program = f"CALLS = {[list(call) for call in calls]}\n{CALLS}"
        result = sandbox.exec(["python3", "-c", program], timeout_s=60)
        return json.loads(result.output)

    return run


def test_every_call_of_the_table_is_denied(errors_of):
    named = denied_numbers()
    errors = errors_of((number, *[-1] * 6) for number in named.values())
    assert len(errors) > 50
    assert {n: e for n, e in zip(named, errors, strict=True) if e != errno.EPERM} == {}


def test_calls_that_are_newer_than_the_table_do_not_exist(errors_of):
    newer = [(number, *[-1] * 6) for number in range(LAST + 1, LAST + 30)]
    assert set(errors_of(newer)) == {errno.ENOSYS}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are x86_64's numbers")
def test_calls_are_denied_by_their_arguments(errors_of):
    new_user, new_net, child = 0x10000000, 0x40000000, 17
    getpid, clone, socket, personality = 39, 56, 41, 135
    denied = [
        (clone, new_user | child, 0, 0, 0, 0),
        (clone, new_net | child, 0, 0, 0, 0),
        (clone, 1 << 32 | 0x20000 | child, 0, 0, 0, 0),
        (socket, 40, 1, 0),
        (personality, 0x40000),
    ]
    allowed = [(getpid,), (socket, 1, 1, 0), (socket, 2, 1, 0), (personality, 0xFFFFFFFF)]
    assert errors_of(denied) == [errno.EPERM] * len(denied)
    assert max(errors_of(allowed)) == 0


def test_each_command_and_the_supervisor_are_under_the_filter(sandbox, shell):
    found = shell(sandbox, "grep -h ^Seccomp: /proc/1/status /proc/self/status").output
    assert found == b"Seccomp:\t2\n" * 2


def test_threads_processes_and_compilers_work_all_the_same(sandbox, shell):
    code = """
import concurrent.futures as futures, multiprocessing as mp
with futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(abs, range(100))))
with mp.get_context("spawn").Pool(2) as pool:
    print(sum(pool.map(abs, range(100))))
"""
    sandbox.put("work.py", f"if __name__ == '__main__':\n{indented(code)}".encode())
    assert shell(sandbox, "python3 work.py").output == b"4950\n4950\n"


def indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.strip().splitlines()) + "\n"
