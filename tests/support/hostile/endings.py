"""Ways to end, with or without a claim that all is well."""

from hostile.base import attack, whole

ATTACKS = (
    attack(
        "exits 0 and prints PASS",
        "crash",
        "`os._exit(0)` behind a printed PASS",
        "print('PASS', flush=True)\nos._exit(0)",
    ),
    attack("exits politely", "crash", "`sys.exit(0)` in a call", "sys.exit(0)"),
    whole(
        "exits 0 at import",
        "crash",
        "ends before there is anything to call",
        "print('PASS')\nimport os\nos._exit(0)\n\ndef row_sum(x, s): ...\n",
    ),
    attack(
        "exits after its answer",
        "crash",
        "a thread ends the process when the right answer is out",
        "later(os._exit, 0)",
    ),
    attack("aborts", "crash", "`abort()`", "os.abort()"),
    attack("kills itself", "crash", "SIGKILL to itself", "os.kill(os.getpid(), signal.SIGKILL)"),
    attack("kills its group", "crash", "SIGTERM to its process group", "os.killpg(0, 15)"),
    attack("sets itself an alarm", "crash", "SIGALRM a moment later", "signal.setitimer(0, 0.003)"),
    attack("dereferences null", "crash", "a segmentation fault", "ctypes.string_at(0)"),
    attack(
        "becomes another program",
        "crash",
        "`execv` of a shell that prints PASS",
        "os.execv('/bin/sh', ['sh', '-c', 'echo PASS'])",
    ),
    attack(
        "becomes a worker that lies",
        "wrong",
        "`execv` of a program that answers once on the kept pipe, of memory that nobody wrote",
        """
pipe = os.dup(ends()[1])
os.set_inheritable(pipe, True)
leaf = '{"name": "y", "dtype": "float32", "shape": [3], "offset": 0}'
body = '{"ok": "call", "n": 1, "outputs": [%s]}' % leaf
lie = f"import os; b = {body!r}.encode(); os.write({pipe}, len(b).to_bytes(4, 'big') + b)"
os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", lie])
""",
    ),
    attack(
        "recurses in Python", "crash", "a function that calls itself", "return row_sum(x, scale)"
    ),
    attack(
        "recurses off the stack",
        "crash",
        "recursion in C with the interpreter's own bound removed",
        "repr(Endless())",
        "sys.setrecursionlimit(1 << 30)\nclass Endless:\n    __repr__ = lambda self: repr(self)",
    ),
    attack(
        "is interrupted",
        "crash",
        "KeyboardInterrupt, which is no `Exception`",
        "raise KeyboardInterrupt",
    ),
    attack(
        "an exception that cannot be shown",
        "crash",
        "an exception whose `str` raises",
        "raise Hidden",
        "class Hidden(Exception):\n    def __str__(self): raise RuntimeError",
    ),
    attack(
        "an exception that ends the process",
        "crash",
        "an exception whose `str` exits with 0",
        "raise Hidden",
        "class Hidden(Exception):\n    def __str__(self): os._exit(0)",
    ),
    attack(
        "an error that is no text",
        "crash",
        "lone surrogates and terminal escapes in an error",
        "raise ValueError('\\ud800 \\x1b[2J')",
    ),
    attack(
        "an endless error", "crash", "an error of 10 MB", "raise ValueError('PASS\\n' * 2_000_000)"
    ),
    attack(
        "blames a compiler",
        "crash",
        "an error that says that gcc is not there, which it is: no fault of the machine's",
        "raise RuntimeError('gcc: command not found')",
    ),
    attack(
        "an error named as another",
        "memory",
        "an exception class of its own called MemoryError: it may choose how it fails",
        "raise type('MemoryError', (Exception,), {})()",
    ),
    attack(
        "hooks the end of the process",
        "pass",
        "`atexit` and `sys.excepthook` that would exit with 0: the worker is killed, not ended",
        "atexit.register(os._exit, 0)\nsys.excepthook = lambda *a: os._exit(0)",
        "import atexit",
    ),
)
