"""The filter of system calls, run step by step; the kernel's own verdicts are a contract test."""

import errno
import re
import struct
from pathlib import Path

import pytest

from sandboxes.syscalls import DENIED, LAST, denied_numbers, filter_program

ALLOW = 0x7FFF0000
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, number: int, argument: int = 0, architecture: int | None = None) -> int:
    """What the filter answers, by an interpreter of the few steps that it is made of."""
    known = ARCHITECTURE[machine] if architecture is None else architecture
    data = struct.pack("=IIQQ", number, known, 0, argument)
    steps = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    at = held = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        else:
            holds = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[code]
            at += yes if holds else no


def refused(what: int) -> int:
    return 0x50000 | what


@pytest.mark.parametrize("machine", HEADERS)
def test_what_is_denied_is_what_the_table_says(machine):
    named = set(denied_numbers(machine).values())
    special = {435, *((56, 41, 135) if machine == "x86_64" else (220, 198, 92))}
    for number in range(LAST + 1):
        if number not in special:
            expected = refused(errno.EPERM) if number in named else ALLOW
            assert verdict(machine, number) == expected, number
    assert verdict(machine, LAST + 1) == refused(errno.ENOSYS)
    assert verdict(machine, 435) == refused(errno.ENOSYS)


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x40000000])
def test_processes_are_made_and_namespaces_are_not(machine, clone, flag):
    assert verdict(machine, clone, 17) == ALLOW
    assert verdict(machine, clone, 0x3D0F00) == ALLOW  # of a thread
    assert verdict(machine, clone, flag | 17) == refused(errno.EPERM)


def test_numbers_of_other_architectures_are_refused():
    assert verdict("x86_64", 39, architecture=0x40000003) == refused(errno.EPERM)  # i386
    assert verdict("x86_64", 0x40000000 + 39) == refused(errno.ENOSYS)  # x32


def test_a_machine_without_a_table_has_no_filter():
    assert filter_program("riscv64") == b""
    assert denied_numbers("riscv64") == {}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_the_kernels(machine):
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    text = HEADERS[machine].read_text()
    defined = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", text))
    named = denied_numbers(machine)
    assert {name: int(defined[name]) for name in named} == named
    assert machine == "aarch64" or named.keys() == DENIED.keys()
