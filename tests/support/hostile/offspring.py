"""Processes and threads beside the worker."""

from hostile.base import attack

DAEMON = """
if first() and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
if AT_CALLS[0] == 1: os.wait()
"""

BEHIND = {"finding": "process:left-behind"}

ATTACKS = (
    attack(
        "fork bomb",
        "timeout",
        "forks until it is refused, and goes on trying",
        "while True:\n    try: os.fork()\n    except OSError: pass",
    ),
    attack(
        "thread bomb",
        "pass",
        "starts threads until it is refused: the worker's own limit of processes",
        """
end, threads = threading.Event(), []
threading.stack_size(64 << 10)
try:
    while len(threads) < 1000:
        threads.append(threading.Thread(target=end.wait))
        threads[-1].start()
    won('a thousand threads')
except RuntimeError: threads.pop()
finally: end.set()
for thread in threads: thread.join()
""",
    ),
    attack("a daemon", "pass", "double fork and `setsid`", DAEMON, **BEHIND),
    attack(
        "a daemon in the worker's name",
        "pass",
        "a daemon that takes the name of the worker's process",
        DAEMON.replace("time.sleep", "LIBC.prctl(15, b'python3', 0, 0, 0)\n        time.sleep"),
        **BEHIND,
    ),
    attack(
        "an adopted daemon",
        "pass",
        "makes itself the reaper of its orphans, and leaves one",
        "LIBC.prctl(36, 1, 0, 0, 0)\n" + DAEMON,
        **BEHIND,
    ),
    attack(
        "a daemon that holds every descriptor",
        "pass",
        "keeps wire, log and memory open in a process that outlives the worker",
        DAEMON.replace("os.setsid()", "os.setsid(); [os.dup(fd) for fd in range(16) if alive(fd)]"),
        "def alive(fd): return os.path.exists(f'/proc/self/fd/{fd}')",
        **BEHIND,
    ),
    attack(
        "a shell in the background",
        "pass",
        "`sh -c 'sleep 600 &'` with a scrubbed environment",
        "first() and subprocess.run(['/bin/sh', '-c', 'sleep 600 >/dev/null 2>&1 &'], env={})",
        **BEHIND,
    ),
    attack(
        "zombies",
        "pass",
        "children that are never awaited",
        "first() and (os.fork() or os._exit(0))",
        **BEHIND,
    ),
    attack(
        "a busy thread",
        "pass",
        "computes on, without the interpreter's lock, when it has answered",
        "first() and threading.Thread(target=spin, daemon=True).start()",
        "def spin():\n    while True: hashlib.pbkdf2_hmac('sha256', b'', b'', 100000)",
        **BEHIND,
    ),
    attack(
        "leaves its child to answer",
        "crash",
        "forks, and the parent exits with 0 while the child goes on",
        "if os.fork(): os._exit(0)",
    ),
    attack(
        "is stopped by its child",
        "timeout",
        "a child that stops the worker and lives on",
        """
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)
time.sleep(0.05)
""",
    ),
    attack(
        "children that compute for it",
        "pass",
        "a pool of processes that works within the call and ends",
        """
children = [os.fork() for _ in range(4)]
if 0 in children: os._exit(0)
for child in children: os.waitpid(child, 0)
""".replace(
            "children = [os.fork() for _ in range(4)]\nif 0 in children: os._exit(0)",
            "children = [os.posix_spawn('/bin/true', ['true'], {}) for _ in range(4)]",
        ),
    ),
)
