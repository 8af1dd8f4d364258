"""The system calls that no isolating sandbox has, as one seccomp filter for all of them.

It denies what Docker's default profile denies to a container without capabilities (read off an
engine, call by call), and io_uring and vsock, which later engines deny too: what reaches deep into
the kernel, into other processes, clocks, keys, mounts and namespaces. Docker's own filter stays in
place beside it. A denied call is EPERM. A call that is newer than the table, and clone3, whose
flags a filter cannot read, are ENOSYS, on which libraries fall back to older calls.
"""

import errno
import functools
import platform
import struct
from collections.abc import Iterator

DENIED: dict[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "pkey_alloc": (330, 289),
    "pkey_free": (331, 290),
    "pkey_mprotect": (329, 288),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
"""Name: number on x86_64 and on aarch64, from asm/unistd_64.h and asm-generic/unistd.h."""

LAST = 449
"""futex_waitv of Linux 5.16: the last call that was looked at."""

_COLUMNS = {"x86_64": 0, "aarch64": 1}
_ARCHITECTURE = (0xC000003E, 0xC00000B7)  # linux/audit.h
_CLONE, _SOCKET, _PERSONALITY, _CLONE3 = (56, 220), (41, 198), (135, 92), 435
_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone takes
_VSOCK = 40
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # of struct seccomp_data
_LOAD, _RETURN, _EQUAL, _GREATER, _ANY_BIT = 0x20, 0x06, 0x15, 0x25, 0x45  # linux/bpf_common.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # linux/seccomp.h
_ENDS = {
    "deny": _ERRNO | errno.EPERM,
    "absent": _ERRNO | errno.ENOSYS,
    "allow": _ALLOW,
}

_Step = tuple[int, int, str | int, str | int]
"""Code, constant, and where to go on when it holds and when not: an end, or steps to skip."""


@functools.cache
def filter_program(machine: str = "") -> bytes:
    """The filter, an array of struct sock_filter; empty where the calls' numbers are not known."""
    column = _COLUMNS.get(machine or platform.machine())
    if column is None:
        return b""
    steps = list(_steps(column))
    ends = {name: len(steps) + number for number, name in enumerate(_ENDS)}
    steps += [(_RETURN, value, 0, 0) for value in _ENDS.values()]

    def offset(at: int, to: str | int) -> int:
        return ends[to] - at - 1 if isinstance(to, str) else to

    return b"".join(
        struct.pack("=HBBI", code, offset(at, yes), offset(at, no), constant)
        for at, (code, constant, yes, no) in enumerate(steps)
    )


def denied_numbers(machine: str = "") -> dict[str, int]:
    """Name and number of each call that is always denied; empty where they are not known."""
    column = _COLUMNS.get(machine or platform.machine())
    numbers = {} if column is None else {name: pair[column] for name, pair in DENIED.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _steps(column: int) -> Iterator[_Step]:
    """From the first check to the last, which allows; seccomp(2) has the data's layout."""
    yield _LOAD, _ARCHITECTURE_AT, 0, 0
    yield _EQUAL, _ARCHITECTURE[column], 0, "deny"
    yield _LOAD, _NUMBER_AT, 0, 0
    yield _GREATER, LAST, "absent", 0  # the calls of x32 are far above
    yield _EQUAL, _CLONE3, "absent", 0
    for pair in DENIED.values():
        if (number := pair[column]) is not None:
            yield _EQUAL, number, "deny", 0
    yield from _if_called(_CLONE[column], [(_ANY_BIT, _NAMESPACES, "deny", "allow")])
    yield from _if_called(_SOCKET[column], [(_EQUAL, _VSOCK, "deny", "allow")])
    *most, last = _PERSONALITIES
    known: list[_Step] = [(_EQUAL, value, "allow", 0) for value in most]
    yield from _if_called(_PERSONALITY[column], [*known, (_EQUAL, last, "allow", "deny")])
    yield _RETURN, _ALLOW, 0, 0


def _if_called(number: int, checks: list[_Step]) -> Iterator[_Step]:
    """Checks of the first argument of one call, which decide."""
    yield _EQUAL, number, 0, len(checks) + 1
    yield _LOAD, _ARGUMENT_AT, 0, 0
    yield from checks
