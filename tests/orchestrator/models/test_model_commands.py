"""`models list`, `models check` and `serve-scripted`, as a user runs them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from command_line import environment
from model_servers import Canned
from orchestrator.commands import models
from orchestrator.models.check import TOOL, check
from orchestrator.models.roster import load_roster

RUN = CliRunner()


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for entry in load_roster():
        if entry.key:
            monkeypatch.delenv(entry.key, raising=False)


def checked(*names):
    result = RUN.invoke(models.app, ["check", "--json", *names])
    return result.exit_code, json.loads(result.stdout)


def test_list_shows_routes_and_whether_keys_are_set(monkeypatch):
    monkeypatch.setenv("ZAI_API_KEY", "sk-test-1")
    result = RUN.invoke(models.app, ["list", "--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["glm-5"]["key_is_set"]
    assert not rows["qwen3.6"]["key_is_set"]
    assert "sk-test-1" not in result.stdout
    assert "glm-5" in RUN.invoke(models.app, ["list"]).stdout


@pytest.mark.parametrize("name", ["oracle", "naive"])
def test_a_built_in_model_passes_in_its_protocol(name):
    code, (row,) = checked(name)
    assert code == 0
    assert row["ok"]
    assert row["served_model"] == name


def test_a_missing_key_fails_with_its_variable():
    code, (row,) = checked("glm-5")
    assert code == 1
    assert row["problem"] == "missing_key"
    assert "ZAI_API_KEY" in row["message"]


@pytest.mark.parametrize(
    ("status", "problem", "advice"),
    [
        (401, "bad_key", "is the key in OPENAI_API_KEY right"),
        (402, "quota", "no money"),
        (404, "bad_request", "is `some` the model's id"),
        (429, "rate_limit", "try again later"),
        (500, "server_error", "the provider is at fault"),
    ],
)
def test_a_failing_provider_is_told_by_cause(canned, monkeypatch, status, problem, advice):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    server = canned(Canned([b"{}"], status, {"Content-Type": "application/json"}))
    one = check(load_roster().resolve("openai/some"), base_url=server.base_url())
    assert (one.ok, one.problem) == (False, problem)
    assert advice in one.message
    assert len(server.bodies) == 1, "one tiny request, no retries"
    assert json.loads(server.bodies[0])["tools"][0]["function"]["name"] == TOOL.name


def test_a_model_without_tool_calling_is_told(canned):
    chunk = b'data: {"choices": [{"delta": {"content": "ready"}, "finish_reason": "stop"}]}\n\n'
    server = canned(Canned([chunk]))
    code, (row,) = checked(f"{server.base_url()}/v1#plain")
    assert code == 1
    assert row["problem"] == "no_tool_call"


def test_no_names_check_the_built_in_one_when_no_key_is_set():
    code, rows = checked()
    assert (code, [row["model"] for row in rows]) == (0, ["oracle"])


def test_serve_scripted_serves_until_it_is_told_to_stop(tmp_path):
    command = [sys.executable, "-m", "orchestrator", "serve-scripted", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as process:
        line = next(line for line in process.stdout if "As a model here" in line)
        code, (row,) = checked(line.split()[-1])
        process.terminate()
    assert code == 0
    assert row["ok"]
    assert process.returncode == 0
