import pytest
from pydantic import BaseModel, ConfigDict

from tasks.declaration import line_of, read_model
from tasks.errors import BrokenTask


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    size: int


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str
    limits: Part
    parts: tuple[Part, ...]


GOOD = """\
title = '''
size = "in a string, no key"
'''

[limits]
name = "l"
size = 1

[[parts]]
name = "a"
size = 1

[[parts]]
name = "b"
size = 2
"""


def read(tmp_path, text):
    path = tmp_path / "whole.toml"
    path.write_text(text, "utf-8")
    return read_model(path, Whole)


def test_a_good_file_is_read(tmp_path):
    assert read(tmp_path, GOOD).parts[1] == Part(name="b", size=2)


def test_fields_are_found_in_their_own_table():
    assert line_of(GOOD, ("limits", "size")) == 7
    assert line_of(GOOD, ("parts", 0, "size")) == 11
    assert line_of(GOOD, ("parts", 1, "size")) == 15
    assert line_of(GOOD, ("parts", 1, "missing")) == 13
    assert line_of(GOOD, ("nowhere",)) == 1


def test_a_misspelt_field_is_told_with_file_line_and_the_right_name(tmp_path):
    with pytest.raises(BrokenTask) as caught:
        read(tmp_path, GOOD.replace('name = "b"', 'nmae = "b"'))
    lines = str(caught.value).splitlines()
    assert f"{tmp_path}/whole.toml:13: parts.1.name: missing; add `name`" in lines
    assert any(
        line.startswith(f"{tmp_path}/whole.toml:14: parts.1.nmae: unknown field")
        and "did you mean `name`?" in line
        for line in lines
    )


def test_a_wrong_value_is_told_with_its_line(tmp_path):
    with pytest.raises(BrokenTask, match=r"whole\.toml:7: limits\.size: .*integer"):
        read(tmp_path, GOOD.replace("size = 1", 'size = "big"', 1))


def test_broken_syntax_is_told_with_its_line(tmp_path):
    with pytest.raises(BrokenTask, match=r"whole\.toml:5: not TOML"):
        read(tmp_path, GOOD.replace("[limits]", "[limits"))


def test_a_missing_and_an_unreadable_file_are_told(tmp_path):
    with pytest.raises(BrokenTask, match="missing; write it"):
        read_model(tmp_path / "none.toml", Whole)
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'")
    with pytest.raises(BrokenTask, match="UTF-8"):
        read_model(tmp_path / "latin.toml", Whole)
