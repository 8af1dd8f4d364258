"""Commands of a session over real connections: pipes, killed commands, waits, and results."""

import http.server
import json
import os
import subprocess
import threading
import time
from contextlib import suppress

import pytest

from graders.base import PublicReport
from orchestrator.turns import client
from orchestrator.turns.commands import NAMES, command_folder
from orchestrator.turns.desk import SessionDesk
from orchestrator.turns.turns import Turns


def go_on() -> None:
    """Nobody asked to stop."""


class Session:
    """A session whose bench takes a turn and lasts as long as it is told."""

    def __init__(self, turns: Turns, device: str, name: str = "s") -> None:
        self.turns, self.device, self.name = turns, device, name
        self.state, self.submitted, self.reports = "one", [], []
        self.lasting = threading.Event()
        self.lasting.set()
        self.desk = SessionDesk(
            name,
            check=lambda: PublicReport(True, "pass", f"pass: {self.state}"),
            bench=self.bench,
            digest=lambda: self.state,
            has_submission=lambda: self.state != "nothing",
            on_report=lambda verb, report: self.reports.append(verb),
            on_submit=lambda: self.submitted.append(True),
            submission_file="solution.py",
        )

    def bench(self, wait_by):
        ticket = self.turns.enter(self.device, self.name)
        wait_by(ticket)
        with ticket.turn(go_on):
            self.lasting.wait(30)
            return PublicReport(True, "pass", f"1 ms: {self.state}", {"a": 1.0})

    def ask(self, verb, wait_s=0.2, asker="a"):
        question = json.dumps({"asker": asker, "wait_s": wait_s})
        status, body = self.desk.ask(verb, question.encode())
        return {"status": status, **json.loads(body)}

    def ask_until_done(self, verb, asker="a"):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            told = self.ask(verb, 1, asker)
            if told["state"] == "done":
                return told
        raise AssertionError("never done")


@pytest.fixture
def session(device):
    return Session(Turns(lambda text: None), device)


@pytest.fixture
def commands(session, tmp_path):
    """The commands on a PATH, and the desk behind a server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = session.desk.ask(self.path.rpartition("/")[2], body)
            with suppress(BrokenPipeError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = command_folder(tmp_path / "commands").source
    path = f"{folder}:{os.environ['PATH']}"
    yield {"PATH": path, "SESSION_DOOR": f"127.0.0.1:{server.server_port}"}
    server.shutdown()
    server.server_close()


def run(command, env, **more):
    return subprocess.run(
        ["bash", "-c", command],
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_run_is_told_within_the_wait_and_its_result_found_later(session):
    session.lasting.clear()
    told = session.ask("bench")
    assert (told["state"], told["status"]) == ("running", 200)
    session.lasting.set()
    told = session.ask_until_done("bench")
    assert (told["passed"], told["text"], told["median_ms"]) == (True, "1 ms: one", {"a": 1.0})
    assert session.reports == ["bench"]


def test_who_waits_hears_how_many_are_ahead(session):
    other = Session(session.turns, session.device, "t")
    session.lasting.clear()
    assert session.ask("bench")["state"] == "running"
    told = other.ask("bench")
    assert (told["state"], told["ahead"], told["text"]) == ("waiting", 1, "bench: busy, 1 ahead")
    session.lasting.set()
    assert other.ask_until_done("bench")["passed"]


def test_a_result_of_an_older_submission_is_measured_again(session):
    session.lasting.clear()
    session.ask("bench")
    session.lasting.set()
    assert session.desk.close(20)
    session.state = "two"
    assert session.ask_until_done("bench")["text"] == "1 ms: two"
    assert session.reports == ["bench", "bench"]


def test_a_result_is_for_all_who_asked_and_a_later_one_measures_again(session):
    session.lasting.clear()
    assert session.ask("bench", asker="left")["state"] == "running"
    assert session.ask("bench", asker="right")["state"] == "running"
    session.lasting.set()
    assert session.ask_until_done("bench", "left")["passed"]
    assert session.ask_until_done("bench", "right")["passed"]
    assert session.reports == ["bench"]
    assert session.ask_until_done("bench", "later")["passed"]
    assert session.reports == ["bench", "bench"]


def test_what_a_run_raises_reaches_who_asks_and_the_next_run_is_new(session):
    session.turns.enter = None  # a defect of ours
    with pytest.raises(TypeError):
        session.ask("bench", 5)
    del session.turns.enter
    assert session.ask_until_done("bench")["passed"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"asker": 1, "wait_s": "x"}',
        b'{"asker": "a", "wait_s": NaN}',
        b'{"asker": [], "wait_s": -1e308}',
        b"[" * 100_000,
    ],
)
def test_hostile_bodies_wait_a_moment_and_no_more(session, body):
    status, answer = session.desk.ask("check", body)
    assert (status, json.loads(answer)["state"] in ("running", "done")) == (200, True)


def test_submit_needs_something_to_hand_in(session):
    session.state = "nothing"
    told = session.ask("submit")
    assert (told["status"], told["passed"]) == (409, False)
    assert not session.submitted
    session.state = "one"
    assert session.ask("submit")["passed"]
    assert session.submitted == [True]


def test_an_unknown_verb_is_answered_with_those_there_are(session):
    told = session.ask("bench-all")
    assert told["status"] == 404
    assert all(name in told["text"] for name in NAMES)


def test_the_commands_print_the_report_and_leave_with_its_verdict(commands, session):
    checked = run("check", commands)
    assert (checked.returncode, checked.stdout) == (0, "pass: one\n")
    session.state = "nothing"
    refused = run("submit", commands)
    assert (refused.returncode, "no solution.py" in refused.stdout) == (1, True)


def test_both_ends_of_a_pipe_and_nested_calls_end(commands, session):
    """Where a wrapper takes the turn, the right end waits for the left and the left for it."""
    piped = run("bench | (bench; cat)", commands)
    assert piped.returncode == 0
    assert piped.stdout.count("1 ms: one") == 2
    nested = run('echo "$(bench) $(check)"', commands)
    assert nested.stdout == "1 ms: one pass: one\n"


def test_a_killed_command_loses_nothing_and_holds_nothing(commands, session):
    session.lasting.clear()
    killed = run("timeout -s KILL 1 bench; echo ended", commands)
    assert killed.stdout.endswith("ended\n")
    time.sleep(client.ASK_S + 0.2)  # what the killed one asked last has been answered to nobody
    session.lasting.set()
    again = run("bench", commands)
    assert again.stdout.endswith("1 ms: one\n")
    assert session.reports == ["bench"]


def test_a_command_gives_up_before_a_command_line_agent_kills_it(commands, session):
    """The shipped patience is below the two minutes of such agents; here it is shorter."""
    session.lasting.clear()
    late = run("bench", commands, SESSION_PATIENCE_S="1")
    assert late.returncode == 75
    assert late.stdout.splitlines()[-1].endswith("Run `bench` again: it goes on meanwhile.")
    session.lasting.set()
    assert run("bench", commands).returncode == 0
    assert session.reports == ["bench"]


def test_without_a_session_a_command_says_so(commands):
    gone = run("check", commands, SESSION_DOOR="127.0.0.1:9")
    assert gone.returncode == 2
    assert "the session does not answer" in gone.stderr


def test_the_shipped_patience_is_below_two_minutes():
    assert client.PATIENCE_S + 5 < 120
