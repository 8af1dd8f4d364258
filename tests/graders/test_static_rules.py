"""Entry points, import closure, language and what is forbidden: all from syntax trees."""

import pytest

from graders.entry import find_entry
from graders.errors import SubmissionFailed
from graders.language import examine_files, language, refuse_forbidden
from graders.sources import closure

ROW_SUM = "def row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"


@pytest.mark.parametrize(
    "text",
    [
        ROW_SUM,
        ROW_SUM.replace("row_sum", "scaled_row_sum"),
        "row_sum = lambda x, scale: x\n",
        "try:\n    from fast import row_sum\nexcept ImportError:\n    def row_sum(x, s): ...\n",
        "if True:\n    def row_sum(x, scale): ...\n",
        "from other import helper as row_sum\n",
        "class Row:\n    def row_sum(self): ...\nrow_sum = Row().row_sum\n",
    ],
)
def test_an_entry_is_found_however_it_is_defined(text, task, submit):
    entry = find_entry(task, submit({"row_sum.py": text}))
    assert entry is not None and entry.absent == ("row_mean",)


def test_a_star_import_from_a_sibling_counts(task, submit):
    files = {"row_sum.py": "from core import *\n", "core.py": ROW_SUM}
    entry = find_entry(task, submit(files))
    assert entry is not None and entry.file == "row_sum.py"


def test_the_prompts_file_is_asked_first_and_tests_never(task, submit):
    files = {"a.py": ROW_SUM, "row_sum.py": ROW_SUM, "test_row_sum.py": ROW_SUM}
    entry = find_entry(task, submit(files))
    assert entry is not None and entry.file == "row_sum.py"
    assert find_entry(task, submit({"test_row_sum.py": ROW_SUM})) is None


@pytest.mark.parametrize("text", ["def row_sum(", "\0", "x = 1\n", "# def row_sum(x, s)\n"])
def test_what_offers_nothing_is_not_found(text, task, submit):
    assert find_entry(task, submit({"row_sum.py": text})) is None


def files_of(task, submit, files):
    folder = submit(files)
    entry = find_entry(task, folder)
    assert entry is not None
    return closure(folder, entry)


FORBIDDEN = [
    "import torch\n",
    "import torch.nn as nn\n",
    "from scipy.linalg import blas\n",
    "import importlib\nlib = importlib.import_module('torch')\n",
    "lib = __import__('scipy')\n",
    "def inner():\n    import torch\n",
    "import numpy as np\ny = np.einsum('i', [1])\n",
    "from numpy import einsum as e\ny = e('i', [1])\n",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_forbidden_imports_and_calls_are_refused_with_a_place(text, task, submit):
    files = files_of(task, submit, {"row_sum.py": "import core\n" + ROW_SUM, "core.py": text})
    with pytest.raises(SubmissionFailed, match=r"core\.py:\d+"):
        refuse_forbidden(task, files)


@pytest.mark.parametrize(
    "text", ["# import torch\n", "'import torch'\n", "import numpy as torch\n", "import mytorch\n"]
)
def test_a_name_alone_condemns_nothing(text, task, submit):
    refuse_forbidden(task, files_of(task, submit, {"row_sum.py": text + ROW_SUM}))


def test_files_that_the_entry_does_not_import_do_not_count(task, submit):
    files = {"row_sum.py": ROW_SUM, "compare_with_torch.py": "import torch\n"}
    refuse_forbidden(task, files_of(task, submit, files))


TRITON = "import triton\n\n@triton.jit\ndef kernel(x): ...\n"
CUDA = "from torch.utils.cpp_extension import load_inline\nload_inline('__global__ void k() {}')\n"
LANGUAGES = [
    ("import numpy as np\n", "cpu", "numpy"),
    ("import ctypes\nlib = ctypes.CDLL('x.so')\n", "cpu", "c"),
    ("from ctypes import CDLL as load\nlib = load('x.so')\n", "cpu", "c"),
    ("# ctypes.CDLL\n", "cpu", "numpy"),
    (TRITON, "gpu", "triton"),
    (TRITON, "cpu", "numpy"),
    ("import triton\n# @triton.jit\n", "gpu", "numpy"),
    (CUDA, "gpu", "cuda_raw"),
    ("'__global__ void k() {}'\nimport torch\n", "gpu", "eager"),
    (CUDA.replace("__global__", "// __global__") + "import torch\n", "gpu", "eager"),
    (CUDA.replace("__global__", "#include <cute/a.hpp>\\n__global__"), "gpu", "cutlass"),
]


@pytest.mark.parametrize(("text", "device", "expected"), LANGUAGES)
def test_the_language_is_that_of_what_can_run(text, device, expected, task, submit):
    files = files_of(task, submit, {"row_sum.py": text + ROW_SUM})
    assert language(files, device) == expected


BUILDER = "import torch\nfrom torch.utils import cpp_extension\ncpp_extension.load('m', ['k.cu'])\n"


def test_kernels_in_files_beside_the_source_count_where_something_builds_them(task, submit):
    files = files_of(task, submit, {"row_sum.py": BUILDER + ROW_SUM})
    assert language(files, "gpu", ["__global__ void k() {}"]) == "cuda_raw"
    assert language(files, "gpu", ["/* __global__ void k() {} */"]) == "eager"


def test_on_a_gpu_the_source_refuses_only_what_no_ledger_could_allow(task, submit):
    accepts = task.model_copy(update={"languages": ("triton",), "forbidden_imports": ()})
    hidden = files_of(
        task, submit, {"row_sum.py": "import ctypes\nctypes.CDLL('k.so')\n" + ROW_SUM}
    )
    with pytest.raises(SubmissionFailed, match="written in `c`"):
        examine_files(accepts, hidden, "gpu")
    both = files_of(task, submit, {"row_sum.py": CUDA + TRITON + ROW_SUM})
    assert examine_files(accepts, both, "gpu") == "cuda_raw"
    with pytest.raises(SubmissionFailed, match="written in `numpy`"):
        examine_files(accepts, both, "cpu")


@pytest.mark.parametrize(
    "files",
    [
        {"core.py": "import numpy as np\n", "row_sum.py": "from core import *\n"},
        {"core.py": "import numpy\n", "row_sum.py": "from core import numpy as np\n"},
        {
            "core.py": "import numpy as xp\n",
            "more.py": "from core import *\n",
            "row_sum.py": "from more import xp as np\n",
        },
    ],
)
def test_a_forbidden_call_is_seen_through_a_sibling_that_imports(files, task, submit):
    files["row_sum.py"] += "def row_sum(x, scale):\n    return np.einsum('rn->r', x)\n"
    with pytest.raises(SubmissionFailed, match=r"numpy\.einsum"):
        refuse_forbidden(task, files_of(task, submit, files))
