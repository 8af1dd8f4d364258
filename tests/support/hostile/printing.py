"""What is printed: kept at its end, shown safely, believed never."""

from hostile.base import attack

ATTACKS = (
    attack(
        "prints that it has passed",
        "wrong",
        "PASS 100/100 for a wrong result",
        "return x[:, 0].copy()",
        "print('PASS 100/100')",
    ),
    attack("floods the log", "pass", "a megabyte a call", "print('x' * 1000000)"),
    attack(
        "floods the log for ever",
        "pass",
        "a thread that prints without end",
        "first() and threading.Thread(target=flood, daemon=True).start()",
        "def flood():\n    while True: os.write(1, b'PASS\\n' * 1000); time.sleep(0.001)",
    ),
    attack(
        "prints for a terminal",
        "pass",
        "escapes that clear a screen, change a title, type an answer",
        "os.write(1, b'\\x1b[2J\\x1b]0;PASS\\x07\\x1b[6n\\x1bP+q\\x1b\\\\\\x9b31m\\r\\b')",
    ),
    attack(
        "prints no text", "pass", "bytes of no encoding, nulls", "os.write(1, bytes(range(256)))"
    ),
    attack(
        "closes its output",
        "pass",
        "standard output and error closed",
        "first() and os.closerange(1, 3)",
    ),
    attack(
        "never blocks on its output",
        "pass",
        "O_NONBLOCK on the log",
        "os.set_blocking(1, False)",
    ),
    attack(
        "prints a grade",
        "wrong",
        "the JSON of a grade that has passed",
        "return x[:, 0].copy()",
        'print(\'{"result": "pass", "score": 1.0}\', flush=True)',
    ),
)
