"""Memory between calls: inputs read early, outputs written late, results kept."""

from hostile.base import attack

SUM = "scale * x.sum(axis=1)"

ATTACKS = (
    attack(
        "writes its output late",
        "wrong",
        "a thread that changes the output memory after the answer",
        "later(late, len(x), wait=0.01)",
        """
def late(n):
    np.frombuffer(worker().maps[1], np.float32)[:n] += 1
""",
        finding="timing:late-write",
    ),
    attack(
        "writes into outputs of earlier calls",
        "pass",
        "keeps every mapping of outputs and fills the old ones: they have been copied",
        """
now = worker().maps[1]
for old in kept:
    if old is not now: np.frombuffer(old, np.uint8)[:] = 0
if now not in kept: kept.append(now)
""",
        "kept = []",
    ),
    attack(
        "changes its input late",
        "wrong",
        "a thread that zeroes the input after the answer",
        "later(lambda: x.fill(0), wait=0.004)",
    ),
    attack(
        "lies in wait for the next input",
        "pass",
        "keeps descriptors and mappings of all memory, and looks for inputs before their call",
        """
for fd in list(worker().fds): kept.append(os.dup(fd))
before = [os.fstat(fd).st_mtime_ns for fd in kept]
for fd in kept[-8:]:
    if os.fstat(fd).st_size < 4096: won('a shrunk memory')
""",
        "kept = []",
    ),
    attack(
        "shrinks its memory",
        "pass",
        "`ftruncate` under the referee's eyes: sealed",
        "for fd in list(worker().fds): refused(os.ftruncate, fd, 0)",
    ),
    attack(
        "grows its memory",
        "pass",
        "`ftruncate` to a terabyte: sealed",
        "for fd in list(worker().fds): refused(os.ftruncate, fd, 1 << 40)",
    ),
    attack(
        "seals its memory",
        "pass",
        "forbids the referee to write: no further seals",
        "for fd in list(worker().fds): refused(fcntl.fcntl, fd, fcntl.F_ADD_SEALS, 8)",
    ),
    attack(
        "punches holes",
        "wrong",
        "gives the pages of its input back: they read as zeros, and that is seen",
        f"""
y = {SUM}
fds = list(worker().fds)
if fds: LIBC.fallocate(fds[0], 3, ctypes.c_long(0), ctypes.c_long(4096))
return y
""",
    ),
    attack(
        "moves the offsets",
        "pass",
        "seeks, locks and flags of the shared descriptions",
        """
for fd in list(worker().fds):
    os.lseek(fd, 77, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.lockf(fd, fcntl.LOCK_EX)
""",
    ),
    attack(
        "caches by address",
        "wrong",
        "the result of the first call with this address",
        f"key = x.ctypes.data\nif key not in kept: kept[key] = {SUM}\n"
        "if kept[key].shape == x.shape[:1]: return kept[key]",
        "kept = {}",
    ),
    attack(
        "caches by object",
        "wrong",
        "the result of the first call with this object",
        f"if id(x) not in kept: kept[id(x)] = (x, {SUM})\nreturn kept[id(x)][1]",
        "kept = {}",
    ),
    attack(
        "caches by a sample",
        "wrong",
        "the result for the same first row",
        f"key = x[0].tobytes()\nif key not in kept: kept[key] = {SUM}\n"
        "if kept[key].shape == x.shape[:1]: return kept[key]",
        "kept = {}",
    ),
    attack(
        "returns one buffer for ever",
        "pass",
        "the same output array each time: legal, and copied at once",
        f"y = kept.setdefault(x.shape, np.zeros(len(x), np.float32))\ny[:] = {SUM}\nreturn y",
        "kept = {}",
    ),
    attack(
        "trusts its own output",
        "wrong",
        "keeps what it returned as the result for the same input",
        f"key = x.tobytes()\nif key not in kept: kept[key] = {SUM}\nreturn kept[key]",
        "kept = {}",
    ),
    attack(
        "knows the sizes that count",
        "wrong",
        "right for small inputs only",
        "if x.size > 60000: return x[:, 0].copy()",
    ),
    attack(
        "knows ordinary inputs",
        "wrong",
        "right for contiguous inputs only",
        "if not x.flags.c_contiguous: return x[:, 0].copy()",
    ),
    attack(
        "counts its calls",
        "wrong",
        "right for the first twenty calls",
        "first()\nif AT_CALLS[0] > 20: return x[:, 0].copy()",
    ),
    attack(
        "watches the clock",
        "wrong",
        "right for the first 30 ms of its process",
        "if time.perf_counter() > begun + 0.03: return x[:, 0].copy()",
        "begun = time.perf_counter()",
    ),
    attack(
        "is right when it is watched",
        "wrong",
        "right where the frame of the call brings new memory or asks for a probe",
        """
frame = sys._getframe(1)
while frame and 'room' not in frame.f_locals.get('frame', {}): frame = frame.f_back
asked = frame.f_locals['frame'] if frame else {}
if not worker().fds and not {'dirty', 'scribble', 'recycle', 'watch'} & set(asked):
    return x[:, 0].copy()
""",
        options={"correctness_only": False},
    ),
    attack(
        "is wrong in timed calls only",
        "wrong",
        "right for small inputs, and for the first twelve large ones",
        "AT_CALLS[0] += x.size > 60000\nif AT_CALLS[0] > 12: return x[:, 0].copy()",
        options={"correctness_only": False},
    ),
    attack(
        "starts when it is let go",
        "pass",
        "work in a handler of SIGCONT, before the question is read: inputs are there no sooner",
        "pass",
        "signal.signal(signal.SIGCONT, lambda *a: sum(range(1000)))",
        options={"correctness_only": False},
    ),
)
