"""The wire: its ends closed, shared, forged, flooded, and read by others."""

from hostile.base import Attack, attack

LIE = """
leaf = {"name": "y", "dtype": DTYPE, "shape": SHAPE, "offset": OFFSET}
answer(json.dumps({"ok": "call", "n": 1, "outputs": [leaf]}).encode())
time.sleep(600)
"""


def lie(name: str, tries: str, dtype: str, shape: str, offset: str = "0") -> Attack:
    """An attack that answers in the worker's name."""
    body = LIE.replace("DTYPE", dtype).replace("SHAPE", shape).replace("OFFSET", offset)
    return attack(name, "tampered", tries, body)


FORGED = """answer(b'{"ok": "call", "n": 1, "outputs": []}')"""

FLOOD = """
def flood():
    while True: answer(b'{"ok": "call", "n": 1, "outputs": []}')
threading.Thread(target=flood, daemon=True).start()
"""

STOLEN = """
try: thief = os.open(f"/proc/self/fd/{ends()[1]}", os.O_RDONLY)
except PermissionError: time.sleep(600)  # of another user than its own
def steal():
    while True: os.read(thief, 1)
threading.Thread(target=steal, daemon=True).start()
time.sleep(600)
"""

ATTACKS = (
    attack(
        "garbage on the pipe",
        "tampered",
        "a frame that is no JSON",
        "os.write(ends()[1], b'\\x00\\x00\\x00\\x04haha')",
    ),
    attack("a frame of 4 GB", "tampered", "claims 4 GB", "os.write(ends()[1], b'\\xff' * 64)"),
    attack(
        "a pipe full of zeros", "tampered", "empty frames", "os.write(ends()[1], bytes(1 << 16))"
    ),
    attack("deep JSON", "tampered", "60,000 brackets", "answer(b'[' * 60000)"),
    attack(
        "numbers that are none",
        "tampered",
        "NaN, infinity and 5,000 digits in a frame",
        'answer(b\'{"ok": "call", "n": \' + b"9" * 5000 + b\', "x": [NaN, -Infinity]}\')',
    ),
    attack(
        "a frame that is a list",
        "tampered",
        "JSON, but no object",
        'answer(b\'["ok", "call", 1]\')',
    ),
    attack("a forged answer", "tampered", "an answer before its own", FORGED),
    attack(
        "an answer to the next call",
        "tampered",
        "sends in advance what the next call will be answered with",
        'answer(b\'{"ok": "call", "n": 2, "outputs": []}\')\ntime.sleep(0.05)',
    ),
    attack("a flood of answers", "tampered", "a thread that answers without end", FLOOD),
    attack(
        "half an answer",
        "timeout",
        "announces 1 MB and sends 1,000 bytes",
        "os.write(ends()[1], (1 << 20).to_bytes(4, 'big') + bytes(1000))\ntime.sleep(600)",
    ),
    attack(
        "an answer in drops",
        "timeout",
        "one byte every 50 ms: a deadline is for the whole answer",
        """
os.write(ends()[1], (1 << 20).to_bytes(4, 'big'))
while True:
    os.write(ends()[1], b' ')
    time.sleep(0.05)
""",
    ),
    attack("reads its own pipe", "timeout", "reopens the pipe, and takes what is in it", STOLEN),
    lie("an infinite shape", "an output of infinite size", "'float32'", "[float('inf')]"),
    lie("a negative shape", "an output of negative size", "'float32'", "[-3]"),
    lie("a negative offset", "an output before its memory", "'float32'", "[3]", "-64"),
    lie("a dtype that is no Python", "a dtype that NumPy evaluates", "'(1,,2)f4,f4'", "[2]"),
    lie("an object dtype", "pointers as numbers", "'object'", "[2]"),
    lie("more elements than numbers", "10^30 times 0 elements", "'float32'", "[10**30, 0]"),
    lie("a nested dtype", "90 brackets as a dtype", "eval('[' * 90 + ']' * 90)", "[2]"),
    attack(
        "outputs that overlap",
        "tampered",
        "a thousand outputs that are one place: a claim larger than its memory",
        """
leaf = {"dtype": "float32", "shape": [500], "offset": 0}
leaves = [leaf | {"name": f"y{n}"} for n in range(1000)]
answer(json.dumps({"ok": "call", "n": 1, "outputs": leaves}).encode())
time.sleep(600)
""",
    ),
    attack(
        "an error that is none",
        "crash",
        "an error frame whose parts have the wrong types: it may fail as it likes",
        """
answer(b'{"error": {"a": 1}, "bases": [[1], {}], "text": [[]], "where": {"x": null}}')
time.sleep(600)
""",
    ),
    attack(
        "writes to the socket of the questions",
        "crash",
        "the referee's end is shut for reading",
        "ends()[0].send(b'x')",
    ),
    attack(
        "sends descriptors",
        "crash",
        "two hundred descriptors over the socket of the questions",
        "socket.send_fds(ends()[0], [b'x'], [1] * 200)",
    ),
    attack(
        "listens elsewhere",
        "timeout",
        "gives the worker another socket to wait at, on which nothing ever comes",
        "kept.extend(socket.socketpair())\nworker().questions = kept[-1]",
        "kept = []",
    ),
    attack("closes the pipe", "crash", "no way left to answer", "os.close(ends()[1])"),
    attack(
        "closes the pipe and waits",
        "crash",
        "no way left to answer, and no end either",
        "os.close(ends()[1])\ntime.sleep(600)",
    ),
    attack("closes the socket", "crash", "no questions any more", "ends()[0].close()"),
    attack("closes every descriptor", "crash", "0 to 255", "os.closerange(0, 256)"),
    attack(
        "shuts the socket down and waits",
        "timeout",
        "`shutdown` of the socket of the questions",
        "ends()[0].shutdown(socket.SHUT_RDWR)\ntime.sleep(600)",
    ),
    attack(
        "puts another pipe in its place",
        "crash",
        "`dup2` over the worker's end: nothing can come from there any more",
        "read, write = os.pipe()\nos.dup2(write, ends()[1])",
    ),
    attack(
        "never blocks on its pipe",
        "pass",
        "O_NONBLOCK, which both ends of a terminal would share, and these do not",
        "os.set_blocking(ends()[1], False)",
    ),
    attack(
        "makes the pipe small",
        "pass",
        "the least size of a pipe",
        "fcntl.fcntl(ends()[1], fcntl.F_SETPIPE_SZ, 4096)",
    ),
    attack(
        "answers in packets",
        "timeout",
        "O_DIRECT: what a read leaves of a packet is lost",
        "fcntl.fcntl(ends()[1], fcntl.F_SETFL, os.O_DIRECT)",
    ),
)
