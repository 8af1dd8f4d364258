"""Seats on GPUs: spread evenly, bounded, first come first served, given back."""

import threading
from contextlib import ExitStack

import pytest

from orchestrator.turns.seats import Seats


def go_on() -> None:
    """Nobody asked to stop."""


class Stop(Exception):
    pass


def test_sessions_are_spread_over_the_gpus():
    seats = Seats(["GPU-a", "GPU-b"], 2)
    with ExitStack() as stack:
        got = [stack.enter_context(seats.seat(go_on)) for _ in range(4)]
    assert sorted(got[:2]) == ["GPU-a", "GPU-b"]
    assert sorted(got) == ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]


def test_a_session_waits_until_a_seat_is_given_back():
    seats = Seats(["GPU-a"], 1)
    got = threading.Event()

    def sit():
        with seats.seat(go_on):
            got.set()

    with seats.seat(go_on):
        waiting = threading.Thread(target=sit)
        waiting.start()
        assert not got.wait(0.3)
    assert got.wait(20)
    waiting.join(20)


def test_who_is_asked_to_stop_keeps_no_place():
    seats = Seats(["GPU-a"], 1)

    def stop():
        raise Stop

    with seats.seat(go_on), pytest.raises(Stop), seats.seat(stop):
        pass
    with seats.seat(go_on) as uuid:
        assert uuid == "GPU-a"


@pytest.mark.parametrize(("gpus", "per_gpu"), [([], 1), (["GPU-a"], 0)])
def test_seats_that_nobody_could_have_are_refused(gpus, per_gpu):
    with pytest.raises(ValueError, match="seats need a GPU"):
        Seats(gpus, per_gpu)
