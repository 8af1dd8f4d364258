"""Source that is hostile to its reader: bounded in time and memory, and never misread."""

import os
import time

import pytest

from graders.entry import find_entry
from graders.errors import SubmissionFailed
from graders.offers import Offers
from graders.reading import MAX_SOURCE_BYTES, SAFE_BYTES, parse
from graders.sources import closure

ROW_SUM = "def row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"


def quickly(call):
    """The result of a call that has 8 s of this process's time."""
    started = time.process_time()
    found = call()
    assert time.process_time() - started < 8
    return found


def ring(count, last=""):
    """Files that star-import each other; ``last`` is in the last of them."""
    stars = "".join(f"from m{n} import *\n" for n in range(count))
    return {f"m{n}.py": stars for n in range(count - 1)} | {f"m{count - 1}.py": stars + last}


def test_a_ring_of_star_imports_is_followed_once(task, submit):
    assert quickly(lambda: find_entry(task, submit(ring(120)))) is None
    entry = quickly(lambda: find_entry(task, submit(ring(120, ROW_SUM))))
    assert entry is not None and entry.names["row_sum"] == "row_sum"


def test_a_ring_offers_what_any_of_its_files_defines(submit):
    folder = submit(
        {
            "a.py": "from b import *\ndef one(): ...\n",
            "b.py": "from a import *\ndef two(): ...\n",
        }
    )
    offers = Offers()
    for path in (folder / "a.py", folder / "b.py"):
        assert [offers.has(path, name) for name in ("one", "two", "three")] == [True, True, False]


def test_methods_are_found_through_bases_and_other_names(submit):
    folder = submit(
        {
            "core.py": "class Base:\n    def append(self): ...\nclass Cache(Base): ...\n",
            "top.py": "from core import Cache as KV\nclass Mine(KV):\n    def read(self): ...\n",
        }
    )
    offers, path = Offers(), folder / "top.py"
    wanted = {"KV.append": True, "Mine.append": True, "Mine.read": True, "KV.read": False}
    assert {name: offers.has(path, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "text",
    [
        "x = f'" + "{a}" * (MAX_SOURCE_BYTES // 3 - 9) + "'\n",
        "# coding: punycode\n" + "a" * 300_000 + "-" + "b" * 300_000,
        "\r# coding: punycode\n" + "a" * 300_000 + "-" + "b" * 300_000,
        "#" + "a" * (MAX_SOURCE_BYTES + 1),
        "x = " + "-" * SAFE_BYTES * 2 + "1",
        "x = a" + ".a" * SAFE_BYTES,
        "x = " + "(" * 300 + ")" * 300,
        "x = '\0'",
        "# coding: utf-7\n" + ROW_SUM,
    ],
    ids=["f-string", "punycode", "after-return", "large", "minus", "chain", "parens", "null", "u7"],
)
def test_what_costs_too_much_is_no_python(text, submit):
    path = submit({"row_sum.py": text}) / "row_sum.py"
    assert quickly(lambda: parse(path)) is None


@pytest.mark.parametrize("coding", ["utf-8", "utf_8", "latin-1", "ascii", "UTF-8"])
def test_ordinary_codings_are_read(coding, submit):
    folder = submit({"row_sum.py": f"#!/usr/bin/env python\n# -*- coding: {coding} -*-\n{ROW_SUM}"})
    assert parse(folder / "row_sum.py") is not None


def test_a_large_honest_file_is_read(submit):
    table = "TABLE = [" + "1.5, " * 40_000 + "]\n"
    assert parse(submit({"row_sum.py": table + ROW_SUM}) / "row_sum.py") is not None


def test_a_fifo_and_a_link_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "link.py").symlink_to("/dev/zero")
    assert parse(tmp_path / "fifo.py") is None and parse(tmp_path / "link.py") is None


def test_many_files_are_bounded_together(task, submit):
    part = "x = [" + "a," * 25_000 + "]\n"
    files = {f"m{n}.py": part for n in range(40)}
    files["row_sum.py"] = "".join(f"import m{n}\n" for n in range(40)) + ROW_SUM
    folder = submit(files)
    entry = find_entry(task, folder)
    assert entry is not None
    with pytest.raises(SubmissionFailed, match="KB of Python"):
        quickly(lambda: closure(folder, entry))
