from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.gateway.server import Gateway
from orchestrator.gateway.terms import Exchange, Terms
from orchestrator.models.entry import ModelEntry
from orchestrator.models.retry import RetryPolicy
from providers import KEY, STREAM, Session, Upstream, chat_stream, entry


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    made.answers = [(200, STREAM, chat_stream())]
    yield made
    made.close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway(RetryPolicy(first_wait_s=0.01, longest_wait_s=0.02)) as made:
        yield made


@pytest.fixture
def session(gateway: Gateway, upstream: Upstream) -> Iterator[Any]:
    """Admit a session; keywords change its terms."""
    made: list[Session] = []

    def admit(protocol: str = "openai", model: ModelEntry | None = None, **changes: Any) -> Session:
        kept: list[Exchange] = []
        base = f"{upstream.url}/v1" if protocol != "anthropic" else upstream.url
        terms: dict[str, Any] = {
            "session_id": "s",
            "entry": model or entry(protocol),
            "base_url": base,
            "key": KEY,
            "record": kept.append,
        }
        made.append(Session(gateway, Terms(**{**terms, **changes}), kept))
        return made[-1]

    yield admit
    for each in made:
        each.http.close()
        each.admission.close()
