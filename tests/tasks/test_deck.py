import shutil

import pytest

from candidates import written
from tasks import hardware
from tasks.deck import deck_names, deck_tasks, load_deck, lock_deck
from tasks.errors import BrokenTask, UnknownDeck, UnknownTask
from tasks.loader import LIBRARY, task_names

DECK = """\
# A deck with two cells of one task.
name = "mine"
title = "Mine"
score = "rubric"
canonical_hardware = "cpu"

[[cells]]
task = "kv-cache"

[[cells]]
task = "other"   # the second
digest = "0000"
"""


@pytest.fixture
def library(tmp_path):
    for name in ("kv-cache", "other"):
        shutil.copytree(LIBRARY / "kv-cache", tmp_path / "library" / name)
    declaration = tmp_path / "library/other/task.toml"
    declaration.write_text(declaration.read_text().replace('"kv-cache"', '"other"'))
    written(tmp_path, {"decks/mine.toml": DECK})
    return tmp_path


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("rounds", ["kv-cache", "layernorm-backward", "fused-softmax-topk"]),
        (
            "hard",
            ["fp8-gemm", "kda-chunk", "paged-attention", "topk", "moe-swiglu", "w4a16-gemm"],
        ),
        ("cuda", ["glm-fused-moe", "nsa", "megaqwen-decode", "grid-mingru"]),
        ("mega", ["kimi-linear-decode"]),
    ],
)
def test_the_shipped_decks_are_locked_to_the_shipped_tasks(name, tasks):
    deck = load_deck(name)
    assert all(cell.digest for cell in deck.cells)
    assert [task.name for task in deck_tasks(deck)] == tasks
    assert deck.canonical_hardware in hardware.load()


def test_every_shipped_task_is_in_a_deck():
    dealt = {cell.task for name in deck_names() for cell in load_deck(name).cells}
    assert dealt == set(task_names())


def test_the_cuda_deck_takes_no_other_language():
    for task in deck_tasks(load_deck("cuda")):
        assert set(task.languages) == {"cuda_raw", "ptx"}, task.name


def test_an_unknown_deck_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownDeck, match="did you mean rounds"):
        load_deck("round")
    assert "rounds" in deck_names()


def test_a_changed_task_is_refused_until_it_is_locked_anew(library):
    decks, tasks = library / "decks", library / "library"
    with pytest.raises(BrokenTask, match=r"`other` is not the one .*new version .*tasks lock mine"):
        deck_tasks(load_deck("mine", decks), tasks)
    assert lock_deck("mine", decks, tasks) == ["kv-cache", "other"]
    locked = load_deck("mine", decks)
    assert [task.digest for task in deck_tasks(locked, tasks)] == [c.digest for c in locked.cells]
    assert lock_deck("mine", decks, tasks) == []
    text = (decks / "mine.toml").read_text()
    assert text.startswith("# A deck with") and "# the second" in text
    written(tasks, {"kv-cache/public/prompt.md": "Other words."})
    with pytest.raises(BrokenTask, match="`kv-cache` is not the one"):
        deck_tasks(load_deck("mine", decks), tasks)


def test_a_locked_task_changes_only_as_a_new_version(library):
    decks, tasks = library / "decks", library / "library"
    lock_deck("mine", decks, tasks)
    before = (decks / "mine.toml").read_text()
    assert [cell.version for cell in load_deck("mine", decks).cells] == [1, 1]
    written(tasks, {"kv-cache/public/prompt.md": "Other words."})
    written(tasks, {"other/public/prompt.md": "Other words."})
    with pytest.raises(BrokenTask) as refused:
        lock_deck("mine", decks, tasks)
    said = str(refused.value)
    assert "`kv-cache` changed" in said and "`other` changed" in said
    assert f"set `version = 2` in {tasks / 'kv-cache/task.toml'}" in said
    assert (decks / "mine.toml").read_text() == before
    for name in ("kv-cache", "other"):
        declaration = tasks / name / "task.toml"
        declaration.write_text(
            declaration.read_text().replace("version = 1\nscor", "version = 2\nscor")
        )
    assert lock_deck("mine", decks, tasks) == ["kv-cache", "other"]
    assert [cell.version for cell in load_deck("mine", decks).cells] == [2, 2]
    deck_tasks(load_deck("mine", decks), tasks)


def test_a_deck_of_a_task_that_is_not_there(library):
    shutil.rmtree(library / "library/other")
    with pytest.raises(UnknownTask, match="no task named `other`"):
        deck_tasks(load_deck("mine", library / "decks"), library / "library")


def test_a_misspelt_deck_field_is_told_with_its_line(library):
    written(library, {"decks/mine.toml": DECK.replace("score =", "scoer =")})
    with pytest.raises(BrokenTask, match=r"mine\.toml:4: scoer: unknown field; .*`score`"):
        load_deck("mine", library / "decks")
