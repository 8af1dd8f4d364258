"""Exclusive turns: order, standing still, other processes, stalls, and stops."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.turns.turns import Turns

ROOT = Path(__file__).parents[3]
HOLD = """
import sys
from sandboxes.lease import lease
with lease(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def go_on() -> None:
    """Nobody asked to stop."""


class Stop(Exception):
    pass


@pytest.fixture
def turns():
    return Turns(lambda text: None)


def hold_until(turns, ticket, got, release, order):
    with ticket.turn(go_on):
        order.append(ticket.who)
        got.set()
        release.wait(20)


def test_turns_are_served_one_at_a_time_in_the_order_of_their_tickets(turns, device):
    tickets = [turns.enter(device, name) for name in "abc"]
    order, inside, most = [], [], []

    def work(ticket):
        with ticket.turn(go_on):
            inside.append(ticket.who)
            most.append(len(inside))
            order.append(ticket.who)
            inside.remove(ticket.who)

    threads = [threading.Thread(target=work, args=(ticket,)) for ticket in reversed(tickets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert order == ["a", "b", "c"]
    assert most == [1, 1, 1]


def test_a_ticket_knows_who_is_ahead_and_when_it_has_the_turn(turns, device):
    first, second, third = (turns.enter(device, name) for name in "abc")
    got, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold_until, args=(turns, first, got, release, []))
    holder.start()
    assert got.wait(20)
    assert (first.has_turn, second.has_turn) == (True, False)
    assert (first.ahead, second.ahead, third.ahead) == (0, 1, 2)
    second.leave()
    assert third.ahead == 1
    release.set()
    holder.join(20)
    assert third.ahead == 0


def test_everything_that_shares_the_device_stands_still_and_goes_on(turns, device, child):
    asking, other, elsewhere, late = child(), child(), child(), child()
    with (
        turns.sharing(device, asking),
        turns.sharing(device, other),
        turns.sharing(f"{device}-2", elsewhere),
    ):
        with turns.enter(device, "a").turn(go_on) as turn:
            assert turn.frozen == 2
            assert asking.stands_still
            assert other.stands_still
            assert not elsewhere.stands_still
            with turns.sharing(device, late):
                assert late.stands_still
        assert not asking.stands_still
        assert not other.stands_still


def test_what_joined_during_a_turn_goes_on_after_it(turns, device, child):
    late = child()
    with turns.enter(device, "a").turn(go_on):
        share = turns.sharing(device, late)
        share.__enter__()
    assert not late.stands_still
    share.__exit__(None, None, None)


def test_work_that_fails_frees_the_device_and_lets_the_others_go_on(turns, device, child):
    other = child()
    with turns.sharing(device, other):
        with pytest.raises(ZeroDivisionError), turns.enter(device, "a").turn(go_on):
            raise ZeroDivisionError
        assert not other.stands_still
        with turns.enter(device, "b").turn(go_on) as turn:
            assert turn.frozen == 1


def test_who_is_asked_to_stop_while_waiting_leaves_the_queue(turns, device):
    first, second, third = (turns.enter(device, name) for name in "abc")

    def stop():
        raise Stop

    with first.turn(go_on), pytest.raises(Stop), second.turn(stop):
        pass
    assert third.ahead == 0


def test_a_holder_in_another_process_that_is_killed_frees_the_device(device):
    said = []
    turns = Turns(said.append, stall_s=0.4)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, device],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    got, release = threading.Event(), threading.Event()
    waiting = threading.Thread(
        target=hold_until, args=(turns, turns.enter(device, "session b"), got, release, [])
    )
    waiting.start()
    assert not got.wait(1.5)
    assert f"process {other.pid}" in said[0]
    assert said[0].endswith("session b waits")
    other.kill()
    other.wait()
    assert got.wait(20)
    release.set()
    waiting.join(20)


def test_a_holder_that_stalls_is_named_to_who_waits_and_not_each_second(device):
    said = []
    turns = Turns(said.append, stall_s=0.2)
    first, second = turns.enter(device, "session a (bench)"), turns.enter(device, "session b")
    got, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold_until, args=(turns, first, got, release, []))
    holder.start()
    assert got.wait(20)
    served = threading.Event()
    waiter = threading.Thread(target=hold_until, args=(turns, second, served, release, []))
    waiter.start()
    assert not served.wait(2.5)
    release.set()
    holder.join(20)
    waiter.join(20)
    assert served.is_set()
    assert all("is held by session a (bench) for" in line for line in said)
    assert 1 <= len(said) <= 4  # 0.2 s or at the first look, then each time it doubles
