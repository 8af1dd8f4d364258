"""Memory and disk, taken until something gives way. Bounded: a hole must not end the machine."""

from hostile.base import attack

SMALL = {"memory_bytes": 512 << 20, "call_s": 10.0}
"""Enough for numpy, and little enough to be filled in a moment."""

ATTACKS = (
    attack(
        "heap bomb",
        "memory",
        "arrays without end",
        "hoard = [np.zeros(1 << 24) for _ in range(1000)]",
        limits=SMALL,
    ),
    attack(
        "heap bomb at import",
        "memory",
        "arrays without end, before it is called",
        "pass",
        "hoard = [np.zeros(1 << 24) for _ in range(1000)]",
        limits=SMALL,
    ),
    attack(
        "mapping bomb",
        "memory",
        "anonymous mappings without end",
        """
try: hoard = [mmap.mmap(-1, 1 << 26) for _ in range(1000)]
except OSError as error: raise MemoryError from error
""",
        limits=SMALL,
    ),
    attack(
        "an output of a terabyte",
        "memory",
        "one number, broadcast to more than there is",
        "return np.broadcast_to(x[:1, 0], (1 << 38,))",
    ),
    attack(
        "a sequence without end",
        "memory",
        "an output that claims a length of 10^11",
        "return Long()",
        "class Long:\n    def __len__(self): return 10 ** 11\n"
        "    def __getitem__(self, n): return 1.0",
    ),
    attack(
        "memfd bomb",
        "memory",
        "files in memory, which no limit of a process counts",
        """
for _ in range(10):
    fd = os.memfd_create('hoard')
    for _ in range(8): os.write(fd, bytes(16 << 20))
won('1.2 GB of 512 MB')
""",
        limits=SMALL,
    ),
    attack(
        "memfd bomb of a child",
        "memory",
        "the same in a process that the worker waits for",
        """
if os.fork() == 0:
    hoard = [os.memfd_create('hoard') for _ in range(12)]
    for fd in hoard: os.write(fd, bytes(1 << 26))
    time.sleep(600)
os.wait()
""",
        limits=SMALL,
    ),
    attack(
        "mapped memfd bomb",
        "memory",
        "files in memory, mapped and left without a descriptor",
        """
for n in range(10):
    fd = os.memfd_create('hoard')
    for _ in range(8): os.write(fd, bytes(16 << 20))
    kept.append(mmap.mmap(fd, 1 << 12))
    os.close(fd)
won('1.2 GB of 512 MB')
""",
        "kept = []",
        limits=SMALL,
    ),
    attack(
        "System V memory bomb",
        "memory",
        "segments that belong to no process",
        """
LIBC.shmat.restype = ctypes.c_void_p
for n in range(10):
    key = LIBC.shmget(0, 1 << 27, 0o1600)
    at = LIBC.shmat(key, None, 0)
    if key < 0 or at in (None, 2 ** 64 - 1): raise MemoryError
    ctypes.memset(at, 1, 1 << 27)
    LIBC.shmdt(ctypes.c_void_p(at))
won('1.2 GB of 512 MB')
""",
        limits=SMALL,
        needs_group=True,
    ),
    attack(
        "children that hoard",
        "memory",
        "five processes with 250 MB each, every one within its own limit",
        """
read, write = os.pipe()
for _ in range(5):
    if os.fork() == 0:
        hoard = bytearray(250 << 20)
        hoard[:: 4096] = b'x' * len(hoard[:: 4096])
        os.write(write, b'x')
        time.sleep(600)
held = b''
while len(held) < 5: held += os.read(read, 5)
time.sleep(0.2)
won('1.2 GB of 512 MB')
""",
        limits=SMALL,
        needs_group=True,
    ),
    attack(
        "fills /tmp",
        "pass",
        "writes until there is no space: its own, of half the memory given",
        """
if not first(): return scale * x.sum(axis=1)
try:
    with open('/tmp/@MARK@', 'wb', buffering=0) as file:
        for _ in range(200): file.write(bytes(16 << 20))
    won('3 GB in /tmp')
except OSError as error:
    if error.errno != errno.ENOSPC: raise
os.truncate('/tmp/@MARK@', 1 << 20)
""",
        limits=SMALL,
    ),
    attack(
        "fills /dev/shm",
        "pass",
        "writes until there is no space: its own, of a quarter of the memory given",
        """
if not first(): return scale * x.sum(axis=1)
try:
    with open('/dev/shm/@MARK@', 'wb', buffering=0) as file:
        for _ in range(200): file.write(bytes(16 << 20))
    won('3 GB in /dev/shm')
except OSError as error:
    if error.errno != errno.ENOSPC: raise
os.truncate('/dev/shm/@MARK@', 1 << 20)
""",
        limits=SMALL,
    ),
    attack(
        "a file of a terabyte",
        "pass",
        "one sparse file beyond the largest size of a file",
        "with open('/tmp/@MARK@', 'wb') as file: refused(file.truncate, 1 << 40)",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
    ),
    attack(
        "twenty thousand files",
        "pass",
        "empty files, names with line ends, a folder that nobody may enter",
        """
if first():
    os.makedirs('/tmp/@MARK@/a\\n\\x1b[2J')
    for n in range(20000): os.close(os.open(f'/tmp/@MARK@/{n}', os.O_CREAT))
    os.chmod('/tmp/@MARK@', 0)
""",
        limits=SMALL,
    ),
    attack(
        "folders in folders, unconfined",
        "pass",
        "1500 folders deep in the scratch of an unconfined worker, closed to everybody",
        """
if first():
    os.chdir(os.environ['TMPDIR'])
    for n in range(1500):
        os.mkdir('@MARK@')
        os.chdir('@MARK@')
    os.chmod('.', 0)
""",
        options={"isolation": "process"},
        limits=SMALL,
    ),
    attack(
        "pipes full of bytes",
        "pass",
        "memory of the kernel: pipes as large as it allows",
        """
if first():
    for _ in range(300):
        read, write = os.pipe()
        try: fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        except OSError: break
        os.set_blocking(write, False)
        os.write(write, bytes(1 << 20))
        kept.extend([read, write])
    for fd in kept: os.close(fd)
""",
        "kept = []",
        limits=SMALL,
    ),
)
