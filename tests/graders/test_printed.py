"""What a process prints is read to its end, and kept in part only."""

import subprocess
import sys
import tracemalloc

from graders.printed import last_words

FLOOD = """
import os
for _ in range(512): os.write(1, b'x' * 65536)
os.write(1, b'end')
os._exit(3)
"""


def run(text, s=60):
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as popen:
        try:
            return last_words(popen, s, 100)
        finally:
            popen.kill()


def test_a_flood_is_drained_and_only_its_end_is_kept():
    tracemalloc.start()
    try:
        code, text = run(FLOOD)
        assert (code, text[-4:], len(text)) == (3, "xend", 100)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_process_that_closes_its_output_is_waited_for():
    assert run("import os, sys\nos.close(1)\nos.close(2)\nos._exit(5)") == (5, "")


def test_a_process_that_does_not_end_has_no_code():
    assert run("import time\nprint('on', flush=True)\ntime.sleep(600)", s=2)[0] is None


def test_a_pipe_held_by_a_child_is_not_waited_for():
    text = "import os, time\nif os.fork() == 0: time.sleep(5)\nelse: os._exit(4)"
    assert run(text)[0] == 4
