import pytest

from sandboxes.staging import plant_canaries, public_files


def test_the_public_folder_is_staged_with_its_folders(tmp_path):
    (tmp_path / "public" / "data").mkdir(parents=True)
    (tmp_path / "public" / "prompt.md").write_text("do it")
    (tmp_path / "public" / "data" / "x.bin").write_bytes(b"\x00")
    assert public_files(tmp_path / "public") == {"prompt.md": b"do it", "data/x.bin": b"\x00"}


def test_links_and_caches_stay_outside(tmp_path):
    public, sealed = tmp_path / "public", tmp_path / "sealed"
    (public / "__pycache__").mkdir(parents=True)
    (public / "__pycache__" / "a.pyc").write_text("")
    (public / "b.pyc").write_text("")
    sealed.mkdir()
    (sealed / "answer.py").write_text("sealed")
    (public / "file.py").symlink_to(sealed / "answer.py")
    (public / "folder").symlink_to(sealed)
    (public / "kept.py").write_text("public")
    assert public_files(public) == {"kept.py": b"public"}


def test_a_missing_public_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no public folder"):
        public_files(tmp_path / "public")


def test_canaries_are_of_one_session_and_can_be_derived_again():
    files, canaries = plant_canaries("one")
    assert plant_canaries("one") == (files, canaries)
    other_files, other = plant_canaries("two")
    tokens = {canary.token for canary in (*canaries.planted, *other.planted)}
    assert len(tokens) == len(canaries.planted) + len(other.planted)
    assert files.keys() == other_files.keys()


def test_the_use_of_a_canary_is_found():
    files, canaries = plant_canaries("one")
    for path, data in files.items():
        assert [canary.path for canary in canaries.found_in(f"x = {data.decode()}")] == [path]
    assert canaries.found_in("honest work") == ()
