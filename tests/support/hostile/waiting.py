"""Ways not to answer. Each ends with a deadline: of a call, of the import, of the grade."""

from hostile.base import attack, whole

ATTACKS = (
    attack("hangs", "timeout", "an endless loop", "while True: pass"),
    whole(
        "hangs at import",
        "timeout",
        "an endless loop at import",
        "while True: pass\n\ndef row_sum(x, scale): ...\n",
    ),
    attack(
        "sleeps through signals",
        "timeout",
        "blocks every signal and sleeps",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)",
    ),
    attack(
        "sleeps with the interpreter's lock",
        "timeout",
        "sleeps in C, where no Python thread can run",
        "ctypes.PyDLL(None).sleep(600)",
    ),
    attack("stops itself", "timeout", "SIGSTOP to itself", "os.kill(os.getpid(), signal.SIGSTOP)"),
    attack(
        "waits for itself",
        "timeout",
        "takes a lock twice",
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    ),
    attack(
        "hangs when it is read",
        "timeout",
        "an output whose `__array__` never returns",
        "return Endless()",
        "class Endless:\n    def __array__(self, *a, **k): time.sleep(600)",
    ),
    attack(
        "hangs when it is freed",
        "timeout",
        "an output whose `__del__` never returns",
        "return np.asarray(scale * x.sum(axis=1)).view(Sticky)",
        "class Sticky(np.ndarray):\n    def __del__(self): time.sleep(600)",
    ),
    attack(
        "hangs when its error is shown",
        "timeout",
        "an exception whose `str` never returns",
        "raise Slow",
        "class Slow(Exception):\n    def __str__(self): time.sleep(600)",
    ),
    attack(
        "spends the whole grade in allowed pieces",
        "timeout",
        "every call just below the deadline of a call",
        "time.sleep(0.4)",
        limits={"total_s": 1.5},
    ),
    attack(
        "waits for input", "pass", "reads its standard input, which is empty", "sys.stdin.read()"
    ),
)
