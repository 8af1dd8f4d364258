from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transcripts.keys import SEGMENT_BYTES, decode_name, encode_name, is_id, new_id

AWKWARD = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "zai-org/GLM-5",
    "x[1m]",
    "bedrock:us.model@v1",
    ".hidden",
    "ends.",
    "under_score",
    "模型" * 150,
    "\N{PILE OF POO}" * 300,
    "A" * 300,
    "." * 300,
    "nul\0byte",
    "lone\ud800surrogate",
    "per%cent",
]


@given(st.text(st.characters(), max_size=400))
@example("." * 121)
@example("a" * 119 + ".")
def test_every_name_comes_back(name: str) -> None:
    path = encode_name(name)
    assert decode_name(path) == name


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_make_real_folders_inside(name: str, tmp_path: Path) -> None:
    path = encode_name(name)
    folder = tmp_path / path
    folder.mkdir(parents=True)
    assert folder.resolve().is_relative_to(tmp_path.resolve())
    assert folder.resolve() != tmp_path.resolve()
    assert decode_name(path) == name
    for segment in path.split("/"):
        assert 0 < len(segment.encode()) <= SEGMENT_BYTES
        assert not segment.startswith(".")


@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_different_names_differ_even_where_case_does_not_count(one: str, other: str) -> None:
    if one != other:
        assert encode_name(one).lower() != encode_name(other).lower()


def test_names_that_differ_only_in_case_stay_apart() -> None:
    names = ["GLM-5", "glm-5", "Glm-5", "_glm-5", "_GLM-5"]
    assert len({encode_name(name).lower() for name in names}) == len(names)


def test_plain_names_stay_readable() -> None:
    assert encode_name("qwen3.6-27b") == "qwen3.6-27b"


@pytest.mark.parametrize("path", ["UPPER", "%zz", "a b", "ü"])
def test_what_was_never_encoded_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not an encoded name"):
        decode_name(path)


def test_ids_sort_by_time_and_are_recognised() -> None:
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert all(map(is_id, ids))
    assert not is_id("glm-5-0a1b2c3d")
