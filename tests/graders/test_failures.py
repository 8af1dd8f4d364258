"""Which word an error frame is, and whether its worker can go on."""

import errno

import pytest

from graders import failures
from graders.errors import GraderVoid, SubmissionFailed

FOLDER = "/grading/submission"


def raised(answer, printed="", missing=None):
    world = failures.Surroundings(
        printed, FOLDER, lambda text: missing if missing in text else None
    )
    if missing is None:
        world = failures.Surroundings(printed, FOLDER, lambda text: None)
    return failures.raised({"error": "call", "text": "", **answer}, world)


def test_an_error_of_a_compiler_counts_wherever_in_the_chain_it_is():
    torchs = {"bases": ["RuntimeError"], "causes": ["CalledProcessError"], "text": "Error building"}
    found = raised(torchs, printed="row.cu(3): error: expected a ';'")
    assert isinstance(found, SubmissionFailed) and found.result == "build"
    assert "expected a ';'" in str(found)
    assert raised({"bases": ["CompilationError", "Exception"]}).result == "build"
    assert raised({"bases": ["RuntimeError"], "causes": ["KeyError"]}).result == "crash"


@pytest.mark.parametrize(
    ("file", "word"),
    [
        (f"{FOLDER}/build/x.o", "build"),
        ("/usr/lib/x.o", "crash"),
        (f"{FOLDER}/../x", "crash"),
        (f"{FOLDER}-other/x", "crash"),
    ],
)
def test_writing_beside_the_sources_is_a_build_and_elsewhere_is_not(file, word):
    answer = {"bases": ["OSError"], "errno": errno.EROFS, "file": file}
    assert raised(answer).result == word


def test_a_missing_compiler_is_void_by_the_error_and_by_what_a_build_printed():
    assert isinstance(raised({"text": "No such file: 'nvcc'"}, missing="nvcc"), GraderVoid)
    failed = {"bases": ["CalledProcessError"]}
    assert isinstance(raised(failed, "sh: nvcc: not found", "nvcc"), GraderVoid)
    assert isinstance(raised({}, "prints nvcc", "nvcc"), SubmissionFailed)
    assert isinstance(raised({"error": "output", "text": "nvcc"}, missing="nvcc"), SubmissionFailed)


@pytest.mark.parametrize(
    ("text", "word", "sticky"),
    [
        ("CUDA error: an illegal memory access was encountered", "illegal_access", True),
        ("Triton Error [CUDA]: misaligned address", "illegal_access", True),
        ("CUDA error: device-side assert triggered", "crash", True),
        ("CUDA error: unspecified launch failure", "crash", True),
        ("CUDA error: invalid configuration argument", "crash", False),
    ],
)
def test_errors_that_end_a_cuda_context_end_the_worker(text, word, sticky):
    answer = {"bases": ["RuntimeError"], "text": text}
    assert raised(answer).result == word and failures.is_sticky(answer) is sticky


@pytest.mark.parametrize("value", [None, 7, [], {}, [["x"]], "RuntimeError"])
def test_frames_with_anything_in_them_are_still_a_failure(value):
    answer = dict.fromkeys(("bases", "causes", "text", "where", "errno", "file"), value)
    assert raised(answer).result == "crash"
