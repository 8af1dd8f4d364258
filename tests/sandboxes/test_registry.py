import socket

import pytest

from sandboxes.base import SandboxSpec
from sandboxes.errors import SandboxUnavailable
from sandboxes.registry import KINDS, default_kind, provider


def test_every_kind_has_a_provider_of_its_name():
    assert [provider(kind).kind for kind in KINDS] == list(KINDS)


def test_an_unknown_kind_offers_the_known_ones():
    with pytest.raises(SandboxUnavailable, match="docker, bubblewrap, process"):
        provider("podman")


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    """A machine without an engine and without programs."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("nothing_here")
def test_without_an_isolating_kind_the_way_out_is_said():
    with pytest.raises(SandboxUnavailable) as refused:
        default_kind()
    for part in ("absent.sock", "apt-get install bubblewrap", "--sandbox process"):
        assert part in str(refused.value)


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("kind", ["docker", "bubblewrap"])
def test_starting_what_is_unavailable_is_refused(kind, tmp_path):
    with pytest.raises(SandboxUnavailable):
        provider(kind).start(SandboxSpec("s", "o", tmp_path / "state"))


@pytest.mark.usefixtures("nothing_here")
def test_reaping_without_an_engine_does_nothing():
    assert provider("docker").reap(lambda owner: False) == []


def test_a_silent_engine_is_given_up_quickly(monkeypatch, tmp_path):
    path = tmp_path / "silent.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        assert "no Docker Engine answers" in str(provider("docker").unavailable_reason())
