"""Which file or folder of a foreign tree is for which task; nothing is executed for it."""

import os
from pathlib import Path

import pytest

from candidates import written
from graders.recording import submission_digest
from orchestrator.batch import NotReadable
from orchestrator.errors import UserError
from orchestrator.foreign import is_one_submission, map_folder, task_of_name
from orchestrator.handin import read_hand_in
from orchestrator.submission import write_folder
from tasks.errors import UnknownTask

CACHE = "class KVCache:\n    pass\n"
NORM = "def layer_norm_backward(*a):\n    pass\n"


def named(root: Path, task: str = "") -> dict[str, tuple[str, str]]:
    return {one.shown: (one.task, one.model) for one in map_folder(root, task).found}


def reasons(root: Path, task: str = "") -> dict[str, str]:
    return {one.shown: one.why for one in map_folder(root, task).unnamed}


def test_the_layouts_are_recognised_with_the_model_that_the_path_says(tmp_path: Path) -> None:
    files = {
        "kv-cache/solution.py": CACHE,
        "glm/layernorm_backward/solution.py": NORM,
        "glm/layernorm_backward/helpers/deep.py": "x = 1\n",
        "deep/er/Fused-Softmax-TopK_v2.py": "x = 1\n",
        "kv_cache-gpt.py": CACHE,
    }
    assert named(written(tmp_path, files)) == {
        "kv-cache": ("kv-cache", ""),
        "glm/layernorm_backward": ("layernorm-backward", "glm"),
        "deep/er/Fused-Softmax-TopK_v2.py": ("fused-softmax-topk", "deep/er"),
        "kv_cache-gpt.py": ("kv-cache", "gpt"),
    }


def test_the_longest_task_of_a_name_is_meant_and_a_letter_makes_another_word() -> None:
    tasks = ["kda", "kda-chunk", "top-k", "top_k"]
    assert task_of_name("kda_chunk2", tasks, whole=False) == ["kda-chunk"]
    assert task_of_name("kdable", tasks, whole=False) == []
    assert task_of_name("kda-v2", tasks, whole=True) == []
    assert task_of_name("TOP_K", tasks, whole=True) == ["top-k", "top_k"]


def test_what_has_no_name_is_listed_with_what_would_name_it(tmp_path: Path) -> None:
    written(tmp_path, {"kv-cache/solution.py": CACHE, "odd/a.py": CACHE, "odder/b.py": "x = 1\n"})
    told = reasons(tmp_path)
    assert set(told) == {"odd", "odder"}
    assert "--task kv-cache" in told["odd"]
    assert 'manifest.toml: "odder"' in told["odder"]


def test_a_task_names_only_what_offers_its_interface(tmp_path: Path) -> None:
    written(tmp_path, {"gpt/a.py": CACHE, "glm/b.py": CACHE, "nobody/c.py": "x = 1\n"})
    assert named(tmp_path, "kv-cache") == {"gpt": ("kv-cache", "gpt"), "glm": ("kv-cache", "glm")}
    assert "does not offer" in reasons(tmp_path, "kv-cache")["nobody"]
    with pytest.raises(UnknownTask, match="kv-cache"):
        map_folder(tmp_path, "kv-cash")


def test_a_manifest_names_paths_tasks_and_models(tmp_path: Path) -> None:
    written(tmp_path, {"a/x.py": CACHE, "b/y.py": NORM, "layernorm-backward/z.py": NORM})
    manifest = '"a/x.py" = "kv-cache"\n"b" = { task = "layernorm-backward", model = "glm" }\n'
    written(tmp_path, {"manifest.toml": manifest})
    assert named(tmp_path) == {
        "a/x.py": ("kv-cache", "a"),
        "b": ("layernorm-backward", "glm"),
        "layernorm-backward": ("layernorm-backward", ""),
    }
    assert reasons(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"a" = "kv-cache"', "no such file"),
        ('"../a" = "kv-cache"', "outside"),
        ('"x.py" = 3', "NAME"),
        ('"x.py" = { tsk = "kv-cache" }', "NAME"),
        ('"x.py" = ', "line 1"),
    ],
)
def test_mistakes_of_a_manifest_name_the_line_or_the_path(
    tmp_path: Path, text: str, said: str
) -> None:
    written(tmp_path, {"x.py": CACHE, "manifest.toml": text + "\n"})
    with pytest.raises(UserError, match=said):
        map_folder(tmp_path)


def test_a_link_is_listed_and_not_followed(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside", {"secret.py": CACHE})
    root = written(tmp_path / "root", {"m/kv-cache/solution.py": CACHE})
    (root / "kv-cache.py").symlink_to(outside / "secret.py")
    (root / "layernorm-backward").symlink_to(outside)
    (root / "again").symlink_to(root)
    assert set(named(root)) == {"m/kv-cache"}
    assert "a link" in reasons(root)["kv-cache.py"]


def test_names_that_are_no_text_are_shown_and_their_files_left_out(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"m\xff") / "kv-cache"
    written(folder, {"solution.py": CACHE, os.fsdecode(b"\xfe.py"): CACHE})
    (one,) = map_folder(tmp_path).found
    assert (one.shown, one.model) == ("m\\xff/kv-cache", "m\\xff")
    hand_in = read_hand_in(one.path)
    assert list(hand_in.files) == ["solution.py"]
    assert hand_in.left_out == ("\\xfe.py: its name is not UTF-8",)


def test_an_empty_python_less_or_boundless_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert map_folder(tmp_path).found == []
    (tmp_path / "kv-cache").mkdir()
    assert "no Python file" in reasons(tmp_path)["kv-cache"]
    written(tmp_path, {f"{n}.txt": "" for n in range(9)})
    monkeypatch.setattr("orchestrator.foreign.MAX_ENTRIES", 9)
    with pytest.raises(UserError, match="more than 9"):
        map_folder(tmp_path)


def test_a_folder_is_one_submission_or_several(tmp_path: Path) -> None:
    single = written(tmp_path / "single", {"solution.py": CACHE, "lib/x.py": "x = 1\n"})
    nested = written(tmp_path / "nested", {"src/solution.py": CACHE})
    several = written(tmp_path / "several", {"a/s.py": CACHE, "b/s.py": CACHE})
    other = written(tmp_path / "other", {"m/layernorm-backward/s.py": NORM})
    assert is_one_submission(single, "kv-cache")
    assert is_one_submission(nested, "kv-cache")
    assert not is_one_submission(single, "")
    assert not is_one_submission(several, "kv-cache")
    assert not is_one_submission(other, "kv-cache")


def test_the_digest_of_a_hand_in_is_that_of_its_grade(tmp_path: Path) -> None:
    files = {"a/b.py": "1\n", "a-b.py": "2\n", "a.py": "3\n", "__pycache__/x.pyc": "4\n"}
    source = written(tmp_path / "source", files)
    hand_in = read_hand_in(source)
    assert sorted(hand_in.files) == ["a-b.py", "a.py", "a/b.py"]
    copy = write_folder(hand_in.files, tmp_path / "copy")
    assert hand_in.digest == submission_digest(copy)


def test_what_cannot_be_taken_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "source", {"a.py": "1\n", "b.py": "2\n"})
    monkeypatch.setattr("orchestrator.handin.MAX_FILES", 1)
    with pytest.raises(NotReadable, match="more than 1 file"):
        read_hand_in(source)
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(NotReadable, match="link"):
        read_hand_in(tmp_path / "link")
    with pytest.raises(NotReadable, match="cannot be read"):
        read_hand_in(tmp_path / "absent")
