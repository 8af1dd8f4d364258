"""Patched libraries and a patched worker: all of it is the submission's own process."""

from hostile.base import attack

STALE = "return x[:, 0].copy()"

ATTACKS = (
    attack(
        "patches the comparison",
        "wrong",
        "`numpy.allclose` and its kin say yes",
        STALE,
        "for name in ('allclose', 'array_equal', 'isclose', 'isfinite', 'array_equiv'):\n"
        "    setattr(np, name, lambda *a, **k: True)",
    ),
    attack(
        "patches the statistics",
        "wrong",
        "`statistics`, `math` and `hashlib` say what it likes",
        STALE,
        "import statistics, math\nstatistics.median = statistics.fmean = lambda *a: 0.0\n"
        "math.isclose = lambda *a, **k: True\nhashlib.sha256 = lambda *a: hashlib.md5(b'')",
    ),
    attack(
        "patches the clock",
        "pass",
        "every clock of `time` stands still; the figures do not",
        "pass",
        "for name in ('time', 'perf_counter', 'monotonic', 'perf_counter_ns', 'monotonic_ns',\n"
        "             'time_ns', 'process_time', 'thread_time'):\n"
        "    setattr(time, name, lambda: 0)",
        options={"correctness_only": False},
    ),
    attack(
        "patches builtins",
        "crash",
        "`isinstance`, `len`, `any` and `all` answer yes",
        STALE,
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.any = lambda *a: True\n"
        "builtins.all = lambda *a: True",
    ),
    attack(
        "patches what copies its outputs",
        "wrong",
        "`Worker._copy_out` describes memory that it never wrote",
        "return x[:, 0]",
        """
def told(self, result, names, room, offset, under):
    shape = [len(result["y"])]
    return [{"name": "y", "dtype": "float32", "shape": shape, "offset": 0, "type": "numpy.ndarray"}]
type(worker())._copy_out = told
""",
    ),
    attack(
        "patches what the worker answers",
        "tampered",
        "`send_answer` says `build` to everything",
        "pass",
        "send = worker().wire.send_answer\n"
        "worker().wire.send_answer = lambda pipe, body: send(pipe, {'ok': 'build'})",
    ),
    attack(
        "counts its own calls",
        "tampered",
        "`send_answer` with a number of the call that was not asked",
        "pass",
        "send = worker().wire.send_answer\n"
        "worker().wire.send_answer = lambda pipe, body: send(pipe, body | {'n': 7})",
    ),
    attack(
        "patches the adapter",
        "wrong",
        "`adapter.run` returns what it kept",
        "return kept.setdefault(x.shape, scale * x.sum(axis=1))",
        "kept = {}\nworker().adapter.run = lambda e, s, i: {'y': row_sum(i['x'], s)}",
    ),
    attack(
        "patches JSON",
        "tampered",
        "`json.dumps` of its own, for the wire too",
        "pass",
        "dumps = json.dumps\njson.dumps = lambda thing, **k: dumps([thing], **k)",
    ),
    attack(
        "patches the mapping of memory",
        "wrong",
        "`mmap` gives it private copies: outputs never reach the referee",
        "pass",
        """
def private(fd, size, **options):
    return real(fd, size, flags=mmap.MAP_PRIVATE)
real, mmap.mmap = mmap.mmap, private
""",
    ),
    attack(
        "patches the reading of arrays",
        "wrong",
        "`numpy.asarray` and `ascontiguousarray` return zeros",
        "pass",
        "np.ascontiguousarray = lambda a: np.zeros(np.shape(a), np.float32)",
    ),
    attack(
        "patches what tells of errors",
        "crash",
        "`traceback` raises while its error is described",
        "raise RuntimeError('it')",
        "import traceback\ntraceback.format_exception_only = None",
    ),
    attack(
        "empties the modules",
        "crash",
        "`sys.modules.clear()`: its own next import fails",
        "first() and sys.modules.clear()",
    ),
    attack(
        "replaces the modules",
        "wrong",
        "another numpy, json and worker in `sys.modules`",
        STALE,
        "import types\nfor name in ('numpy', 'json', '__main__', '_referee_wire'):\n"
        "    sys.modules[name] = types.ModuleType(name)",
    ),
    attack(
        "traces the worker",
        "tampered",
        "`sys.settrace` in the worker's frames, to change what they hold",
        "sys.settrace(trace)\nsys._getframe(2).f_trace = trace\nreturn x[:, 0].copy()",
        """
def trace(frame, event, value):
    if event == 'return' and isinstance(value, list): value.clear()
    return trace
""",
    ),
    attack(
        "changes what True is",
        "crash",
        "overwrites the small integers of the interpreter",
        "for n in range(257): ctypes.memset(id(n) + 24, 7, 4)\nos.kill(os.getpid(), 9)",
    ),
    attack(
        "collects no garbage",
        "pass",
        "garbage collection off, and cycles in every call",
        "gc.disable()\nloop = [x]\nloop.append(loop)",
    ),
    attack(
        "closes the worker's memory",
        "wrong",
        "the worker's mappings swapped for its own",
        "w = worker()\nw.maps = tuple(mmap.mmap(-1, len(m)) for m in w.maps)",
    ),
    attack(
        "asks for more room",
        "tampered",
        "the frame of the call, found by a frame walk, with a hundredfold room",
        """
frame = sys._getframe(1)
while frame and 'room' not in frame.f_locals.get('frame', {}): frame = frame.f_back
frame.f_locals['frame']['room'] *= 10000
worker().maps = (worker().maps[0], mmap.mmap(-1, 1 << 24))
return np.zeros(1 << 20, np.float32)
""",
    ),
    attack(
        "changes the number of its call",
        "tampered",
        "the frame of the call, found by a frame walk, with another number",
        """
frame = sys._getframe(1)
while frame and 'room' not in frame.f_locals.get('frame', {}): frame = frame.f_back
frame.f_locals['frame']['n'] += 1
""",
    ),
    attack(
        "declares other outputs",
        "wrong",
        "empties the worker's list of outputs",
        "worker().outputs = ()",
    ),
)
