"""The retry policy's arithmetic, without a server."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from orchestrator.models.errors import BadKey, RateLimited, ServerError
from orchestrator.models.retry import TRIES, RetryPolicy, retry_after_s

NO_WAIT = {"first_wait_s": 0.0, "longest_wait_s": 0.0}


def failing(*errors):
    left = list(errors)

    def once():
        if left:
            raise left.pop(0)
        return "whole"

    return once


def test_classes_are_counted_apart():
    policy = RetryPolicy({"rate_limit": 2, "server_error": 2}, **NO_WAIT)
    notices = []
    once = failing(RateLimited("a"), ServerError("b"))
    assert policy.ask(once, notices.append) == "whole"
    assert [(notice.try_number, notice.error) for notice in notices] == [
        (1, "rate_limit"),
        (2, "server_error"),
    ]


def test_the_last_error_is_raised_as_it_was():
    policy = RetryPolicy({"server_error": 2}, **NO_WAIT)
    with pytest.raises(ServerError, match="second"):
        policy.ask(failing(ServerError("first"), ServerError("second")), lambda _: None)


def test_a_bad_key_is_not_retried():
    with pytest.raises(BadKey):
        RetryPolicy(**NO_WAIT).ask(failing(BadKey("no")), pytest.fail)


def test_other_exceptions_pass_through():
    with pytest.raises(ZeroDivisionError):
        RetryPolicy(**NO_WAIT).ask(lambda: 1 / 0, pytest.fail)


def test_waits_double_up_to_the_longest():
    policy = RetryPolicy(first_wait_s=1.0, longest_wait_s=8.0)
    for failures, ceiling in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (40, 8.0)):
        assert ceiling / 2 <= policy.wait_s(ServerError("x"), failures) <= ceiling


def test_a_retry_after_is_bounded_to_an_hour():
    waits = RetryPolicy().wait_s(RateLimited("x", retry_after_s=1e9), 1)
    assert 3600 <= waits <= 3960


def test_retry_after_in_all_its_forms():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=100), usegmt=True)
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"retry-after-ms": "1500", "retry-after": "7"}) == 1.5
    assert 90 < (retry_after_s({"retry-after": soon}) or 0) <= 100
    assert retry_after_s({"retry-after": past}) == 0
    assert retry_after_s({}) is None
    assert retry_after_s({"retry-after": "inf"}) is None
    assert retry_after_s({"retry-after": "tomorrow"}) is None


def test_a_date_is_read_against_the_providers_own_clock():
    theirs = datetime(2031, 1, 1, tzinfo=UTC)  # ours is years off
    headers = {
        "date": format_datetime(theirs, usegmt=True),
        "retry-after": format_datetime(theirs + timedelta(seconds=7), usegmt=True),
    }
    assert retry_after_s(headers) == 7


def test_refusals_are_in_no_retry_list():
    assert not {"bad_key", "bad_request", "context_overflow", "quota", "interrupted"} & set(TRIES)
