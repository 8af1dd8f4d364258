"""Texts: hostile to whoever parses them, before anything runs."""

from hostile.base import HONEST, Attack, attack, whole

ROW_SUM = f"def row_sum(x, scale):\n{HONEST}"


def ring(count: int) -> dict[str, str]:
    """Files that star-import each other, with the entry in the last."""
    stars = "".join(f"from m{n} import *\n" for n in range(count))
    files = {f"m{n}.py": stars for n in range(count)}
    return files | {"row_sum.py": stars, f"m{count - 1}.py": ROW_SUM}


ATTACKS: tuple[Attack, ...] = (
    whole("nothing", "import", "an empty file", ""),
    whole("no Python", "import", "a missing colon", "def row_sum(x, scale)\n    return x\n"),
    whole("null bytes", "import", "a null in a text", "x = '\0'\n" + ROW_SUM),
    whole("another interface", "import", "a function of another name", "def sum_rows(x, s): ...\n"),
    whole(
        "an entry in dead code",
        "import",
        "defined where it never runs",
        f"if False:\n    {ROW_SUM.strip().replace(chr(10), chr(10) + '    ')}\n",
    ),
    whole("an entry that is a number", "crash", "`row_sum = 5`", "row_sum = 5\n"),
    whole(
        "raises at import",
        "import",
        "an exception at import",
        "raise RuntimeError('no')\n" + ROW_SUM,
    ),
    attack(
        "imports what is not there",
        "import",
        "a package that is not allowed",
        "pass",
        "import pandas",
    ),
    attack("imports what is forbidden", "forbidden", "torch", "pass", "import torch"),
    attack(
        "calls what is forbidden",
        "forbidden",
        "einsum",
        "return np.einsum('rn->r', x)",
        "import numpy as np",
    ),
    attack(
        "a compiler that fails",
        "build",
        "gcc without a source",
        "pass",
        "subprocess.run(['gcc', 'none.c'], check=True)",
    ),
    attack(
        "1500 elif",
        "pass",
        "a branch 1,500 deep",
        "pass",
        "if sys.argv == 0: pass\n" + "elif sys.argv == 1: pass\n" * 1500,
    ),
    attack(
        "a chain of 900 attributes",
        "pass",
        "900 deep",
        "if len(x) < 0: x" + ".a" * 900 + "()",
    ),
    whole(
        "100,000 signs",
        "import",
        "an expression too deep",
        "x = " + "-" * 100_000 + "1\n" + ROW_SUM,
    ),
    whole(
        "100,000 attributes",
        "import",
        "a chain too deep",
        "x = a" + ".a" * 100_000 + "\n" + ROW_SUM,
    ),
    whole(
        "300 brackets",
        "import",
        "brackets too deep",
        "x = " + "(" * 300 + ")" * 300 + "\n" + ROW_SUM,
    ),
    whole(
        "a line of 10 MB",
        "import",
        "more than is read",
        "x = '" + "a" * 10_000_000 + "'\n" + ROW_SUM,
    ),
    whole(
        "an f-string of 500 KB",
        "import",
        "quadratic to parse in Python 3.11: refused after 5 s of a process of its own",
        "x = f'" + "{a}" * 160_000 + "'\n" + ROW_SUM,
    ),
    whole(
        "a quadratic coding",
        "import",
        "`punycode`, whose decoder would take minutes",
        "# coding: punycode\n" + "a" * 200_000 + "-" + "b" * 200_000,
    ),
    whole(
        "a coding that hides",
        "import",
        "`utf-7`: another text than is read",
        "# coding: utf-7\n" + ROW_SUM,
    ),
    whole("a ring of star imports", "pass", "files that all import each other", ring(40)),
    whole(
        "files without end",
        "import",
        "forty files of 64 KB: more Python than is read",
        {f"m{n}.py": "x = [" + "a, " * 21_000 + "]\n" for n in range(40)}
        | {"row_sum.py": "".join(f"import m{n}\n" for n in range(40)) + ROW_SUM},
    ),
    whole(
        "strange names",
        "pass",
        "line ends, escapes and no UTF-8 in names of files",
        {"row_sum.py": ROW_SUM, "a\n\x1b[2J.py": "", "\udcff.py": "x = 1\n", "-rf": "", "*": ""},
    ),
    whole(
        "a folder named as the file",
        "pass",
        "row_sum.py is a folder, the entry lies in it",
        {"row_sum.py/row_sum.py": ROW_SUM},
    ),
)
