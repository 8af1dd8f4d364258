"""Other processes, rights and the kernel: each step must be refused, or reach nobody."""

from hostile.base import attack

ATTACKS = (
    attack(
        "signals its parent",
        "pass",
        "SIGKILL and SIGSTOP to the process above it",
        "for number in (9, 19): refused(os.kill, os.getppid(), number)",
    ),
    attack(
        "signals everybody",
        "pass",
        "SIGKILL to all processes that it may signal",
        "try: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass",
    ),
    attack(
        "signals by number",
        "pass",
        "SIGKILL to every number up to 4096 but its own",
        """
if first():
    for pid in range(2, 4096):
        if pid != os.getpid():
            try: os.kill(pid, signal.SIGKILL)
            except OSError: continue
            won(pid)
""",
    ),
    attack(
        "signals the first process",
        "pass",
        "SIGKILL to the init of its namespace",
        "try: os.kill(1, signal.SIGKILL)\nexcept PermissionError: pass",
    ),
    attack(
        "looks for the referee",
        "pass",
        "every process in /proc: the jail's own, and itself",
        "if len(others()) > 2: won(others())",
    ),
    attack(
        "reads memory of others",
        "pass",
        "/proc/PID/mem of every process",
        "for pid in others(): refused(open, f'/proc/{pid}/mem', 'rb')",
    ),
    attack(
        "reads environments of others",
        "pass",
        "/proc/PID/environ of every process, for what is not its own",
        """
for pid in others():
    try: found = open(f'/proc/{pid}/environ').read()
    except OSError: continue
    if set(found.split('\\0')) - {f'{k}={v}' for k, v in os.environ.items()} - {''}: won(found)
""",
    ),
    attack(
        "reads descriptors of others",
        "pass",
        "/proc/PID/fd and the roots of every process",
        """
for pid in others():
    refused(os.listdir, f'/proc/{pid}/fd')
    refused(os.listdir, f'/proc/{pid}/root/')
""",
    ),
    attack(
        "reads maps of others",
        "pass",
        "/proc/PID/maps of every process",
        """
for pid in others():
    try: found = open(f'/proc/{pid}/maps').read()
    except OSError: continue
    if found: won(found)
""",
    ),
    attack(
        "traces others",
        "pass",
        "PTRACE_ATTACH and PTRACE_SEIZE",
        """
for pid in others():
    for request in (16, 0x4206):
        if LIBC.ptrace(request, pid, None, None) == 0: won(pid)
""",
    ),
    attack(
        "reads and writes memory of others",
        "pass",
        "process_vm_readv and process_vm_writev",
        """
here = ctypes.create_string_buffer(8)
ours = ctypes.addressof(here).to_bytes(8, 'little') + (8).to_bytes(8, 'little')
for pid in others():
    for there in (0x400000, ctypes.addressof(here)):
        theirs = there.to_bytes(8, 'little') + (8).to_bytes(8, 'little')
        for number in (310, 311): refused(syscall, number, pid, ours, 1, theirs, 1, 0)
""",
    ),
    attack(
        "takes descriptors of others",
        "pass",
        "pidfd_getfd",
        """
for pid in others():
    try: pidfd = os.pidfd_open(pid)
    except OSError: continue
    for fd in range(16): refused(syscall, 438, pidfd, fd, 0)
""",
    ),
    attack(
        "enters namespaces of others",
        "pass",
        "`setns` to every namespace of every process",
        """
for pid in others():
    for kind in ('mnt', 'pid', 'net', 'user'):
        try: fd = os.open(f'/proc/{pid}/ns/{kind}', os.O_RDONLY)
        except OSError: continue
        if LIBC.setns(fd, 0) == 0: won((pid, kind))
""",
    ),
    attack(
        "becomes root",
        "pass",
        "setuid, setgid, setgroups, capset",
        """
refused(os.setgroups, [0])
if os.getuid():
    refused(os.setuid, 0)
    refused(os.setgid, 0)
caps = open('/proc/self/status').read()
if 'CapEff:\\t0000000000000000' not in caps or 'CapBnd:\\t0000000000000000' not in caps:
    if os.getuid() == 0: won(caps)
""",
    ),
    attack(
        "runs a program of root's",
        "pass",
        "su, sudo and mount, if they are there: no new privileges",
        """
tried = [['su', '-c', 'id'], ['sudo', '-n', 'id'], ['mount', '-t', 'tmpfs', 'x', '/usr']]
for words in tried if first() else []:
    try: done = subprocess.run(words, stdin=-3, capture_output=True, timeout=2)
    except (OSError, subprocess.TimeoutExpired): continue
    if done.returncode == 0: won(words)
""",
        limits={"call_s": 10.0},
    ),
    attack(
        "makes namespaces",
        "pass",
        "a user namespace of its own, and in it: no cover comes off, nothing becomes writable",
        """
child = os.fork()
if child == 0:
    if LIBC.unshare(0x10000000 | 0x20000) == 0:
        for path in (b'/opt', b'/usr', b'/grading/worker', b'/grading/submission'):
            if LIBC.umount2(path, 2) == 0: os._exit(1)
        LIBC.mount(None, b'/grading/worker', None, 0x1020, None)
        try: open('/grading/worker/@MARK@', 'w')
        except OSError: os._exit(0)
        os._exit(2)
    os._exit(0)
if os.waitpid(child, 0)[1]: won('a cover')
""",
    ),
    attack(
        "mounts",
        "pass",
        "mount, umount, pivot_root, chroot",
        """
if LIBC.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: won('mount')
if LIBC.umount2(b'/proc', 2) == 0: won('umount')
refused(os.chroot, '/tmp')
refused(syscall, 155, b'/tmp', b'/tmp')
""",
    ),
    attack(
        "raises its limits",
        "pass",
        "address space, processes, files: hard limits stay",
        """
for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY: continue
    try: resource.setrlimit(kind, (hard, hard + 1))
    except (OSError, ValueError): continue
    won(kind)
""",
    ),
    attack(
        "raises its priority",
        "pass",
        "nice, SCHED_FIFO, real-time input and output",
        """
refused(os.nice, -20)
refused(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))
refused(syscall, 251, 1, 0, (1 << 13) | 0)
os.nice(5)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
""",
    ),
    attack(
        "takes other cores",
        "pass",
        "sched_setaffinity to all of them: tampering where time counts, nothing elsewhere",
        "os.sched_setaffinity(0, range(64))",
    ),
    attack(
        "spares itself",
        "pass",
        "the last to be killed when memory runs out",
        "refused(open('/proc/self/oom_score_adj', 'w', buffering=1).write, '-1000\\n')",
    ),
    attack(
        "filters its own calls",
        "pass",
        "a seccomp filter in a child, and no dump of itself",
        """
LIBC.prctl(4, 0, 0, 0, 0)
if os.fork() == 0:
    LIBC.prctl(22, 1, 0, 0, 0)
    os.getpid()
    os._exit(0)
os.wait()
""",
    ),
    attack(
        "keeps keys",
        "pass",
        "a key in the session's keyring, for the next worker to find",
        """
ring = -3
try: found = syscall(250, 10, ring, b'user', b'hostile', 0)
except OSError: found = 0
if found and first(): won('a key of an earlier worker')
try: syscall(248, b'user', b'hostile', b'answer', 6, ring)
except OSError: pass
AT_CALLS[0] += 1
""",
    ),
    attack(
        "rings of the kernel",
        "pass",
        "io_uring, aio, userfaultfd: where they are given, they are its own",
        """
for number, words in ((425, (8, bytes(120))), (206, (8, bytes(8))), (323, (0,))):
    try: syscall(number, *words)
    except OSError: pass
""",
    ),
    attack(
        "measures the machine",
        "pass",
        "perf_event_open on all processes and cores",
        """
asked = (0).to_bytes(4, 'little') + (112).to_bytes(4, 'little') + bytes(104)
for core in range(2): refused(syscall, 298, asked, -1, core, -1, 0)
""",
    ),
    attack(
        "programs the kernel",
        "pass",
        "bpf, modules, kexec, reboot, the clock, raw ports",
        """
refused(syscall, 321, 5, bytes(120), 120)
refused(syscall, 175, bytes(8), 8, b'')
refused(syscall, 246, 0, 0, None, 0)
refused(syscall, 169, 0, 0, 0, None)
refused(time.clock_settime, time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
if LIBC.iopl(3) == 0: won('iopl')
""",
    ),
    attack(
        "writes to /proc and /sys",
        "pass",
        "settings of the kernel, and its triggers",
        """
for path in ('/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern', '/proc/sys/vm/drop_caches',
             '/proc/sys/kernel/hostname', '/sys/power/state', '/sys/kernel/mm/ksm/run'):
    refused(open, path, 'w')
""",
    ),
    attack(
        "reads the kernel",
        "pass",
        "its memory, its log, its addresses",
        """
for path in ('/proc/kcore', '/dev/mem', '/dev/kmem'): refused(open, path, 'rb')
refused(syscall, 103, 3, bytes(64), 64)
with open('/proc/kallsyms') as file:
    if any(int(next(file).split()[0], 16) for _ in range(100)): won('addresses')
""",
    ),
    attack(
        "makes devices",
        "pass",
        "nodes of disks and memory",
        "for kind in (0o60600, 0o20600): refused(os.mknod, '/tmp/@MARK@', kind, os.makedev(1, 1))",
    ),
    attack(
        "connects",
        "pass",
        "sockets to this machine and to others: only a loopback of its own",
        """
for address in (('127.0.0.1', 22), ('127.0.0.1', 80), ('192.0.2.1', 443), ('8.8.8.8', 53)):
    refused(socket.create_connection, address, 0.2)
refused(socket.getaddrinfo, 'example.org', 443)
""",
    ),
    attack(
        "raw sockets",
        "pass",
        "packets of its own making",
        """
refused(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
refused(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
""",
    ),
    attack(
        "an abstract socket",
        "pass",
        "a name outside the file system, for the next worker to find",
        """
found = socket.socket(socket.AF_UNIX)
if first():
    refused(found.connect, '\\0hostile')
    kept.append(socket.socket(socket.AF_UNIX))
    kept[0].bind('\\0hostile')
    kept[0].listen()
found.close()
""",
        "kept = []",
    ),
    attack(
        "shared memory by name",
        "pass",
        "System V segments and queues, for the next worker to find",
        """
if first():
    if LIBC.shmget(0x5EED, 4096, 0) >= 0: won('a segment of an earlier worker')
    LIBC.shmget(0x5EED, 4096, 0o1666)
    LIBC.msgget(0x5EED, 0o1666)
    LIBC.semget(0x5EED, 1, 0o1666)
""",
    ),
)
