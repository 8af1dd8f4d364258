"""One model of the roster: where it is asked, with what, what it costs, and who it is."""

import os
from datetime import date
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from orchestrator.errors import UserError
from transcripts.records import ModelIdentity, Usage

SCRIPTED_ROUTE = "scripted"
MILLION = 1_000_000


class MissingKey(UserError):
    """The environment variable that holds a model's key is not set."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rates(_Part):
    """USD per million tokens, for prompts above a size; None is unknown."""

    above_input_tokens: int = 0
    input: float
    output: float
    cache_read: float | None = None
    cache_write_5m: float | None = None
    cache_write_1h: float | None = None


class Prices(_Part):
    """What the provider asks, where it says so and when that was looked up."""

    source: str
    date: date
    rates: tuple[Rates, ...] = Field(min_length=1)  # ascending ``above_input_tokens``

    def cost_usd(self, usage: Usage) -> float | None:
        """USD of one reply; None when a kind of token was used whose price is unknown."""
        prompt = (
            usage.input_tokens
            + usage.cache_read_tokens
            + usage.cache_write_5m_tokens
            + usage.cache_write_1h_tokens
        )
        fitting = [rates for rates in self.rates if prompt >= rates.above_input_tokens]
        if not fitting:
            return None
        rates = fitting[-1]
        parts = (
            (usage.input_tokens, rates.input),
            (usage.output_tokens, rates.output),
            (usage.cache_read_tokens, rates.cache_read),
            (usage.cache_write_5m_tokens, rates.cache_write_5m),
            (usage.cache_write_1h_tokens, rates.cache_write_1h),
        )
        if any(tokens and price is None for tokens, price in parts):
            return None
        return sum(tokens * price for tokens, price in parts if price is not None) / MILLION


class ModelEntry(_Part):
    """A model as the roster or a direct form gives it."""

    name: str  # as asked for, without its label
    protocol: Literal["openai", "openai-responses", "anthropic", "gemini"]
    model: str  # what is sent as `model`
    base_url: str | None = None  # None: a built-in model, served by the scripted server
    key: str | None = None  # environment variable that holds the key; None where none is needed
    context_tokens: int | None = None
    max_output_tokens: int | None = None  # sent where the protocol demands a limit
    params: dict[str, JsonValue] = Field(default_factory=dict)  # fields of every request
    efforts: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)  # effort -> fields
    effort: str | None = None
    sampling: dict[str, JsonValue] = Field(default_factory=dict)
    provider: JsonValue = None  # pin of a router's provider, sent as `provider`
    stream_usage: bool = True  # ask for usage in streams; some refuse the field and send it anyway
    cache: Literal["none", "5m", "1h"] = "5m"  # prompt caching, where the protocol marks it
    stall_s: float = Field(
        default=600.0, gt=0
    )  # seconds without a token before the try is given up
    prices: Prices | None = None
    label: str | None = None  # a checkpoint's name behind one endpoint
    weights_digest: str | None = None
    server_flags: tuple[str, ...] = ()

    @property
    def is_scripted(self) -> bool:
        """True for the built-in models."""
        return self.base_url is None

    @property
    def route(self) -> str:
        """Protocol and URL without credentials, and the provider pin; see `Entrant.route`."""
        if self.base_url is None:
            return SCRIPTED_ROUTE
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]
        pin = f" provider={self.provider}" if self.provider is not None else ""
        return f"{self.protocol}:{parts.scheme}://{host}{parts.path}{pin}"

    def entrant_identity(self) -> tuple[ModelIdentity, str]:
        """The model as served and its route, for the entrant's digest."""
        identity = ModelIdentity(
            name=self.name,
            served_id=self.model,
            label=self.label,
            weights_digest=self.weights_digest,
            server_flags=self.server_flags,
        )
        return identity, self.route

    def request_params(self) -> dict[str, JsonValue]:
        """The fields that every request carries beside model, messages and tools."""
        params = {**self.params}
        if self.protocol == "openai" and self.stream_usage:
            params.setdefault("stream_options", {"include_usage": True})
        if self.protocol == "anthropic":
            params.setdefault("max_tokens", self.max_output_tokens or DEFAULT_MAX_TOKENS)
        if self.effort is not None:
            params.update(self.efforts[self.effort])
        if self.provider is not None:
            params["provider"] = self.provider
        return {**params, **self.sampling}

    def cost_usd(self, usage: Usage) -> float | None:
        """USD of one reply; None is unknown, never zero by default."""
        if self.is_scripted:
            return 0.0
        if usage == Usage():  # every reply has tokens: this provider did not say how many
            return None
        return self.prices.cost_usd(usage) if self.prices else None

    def read_key(self) -> str:
        """The key, read now; never kept in the entry. Raises MissingKey."""
        if self.key is None:
            return "none-needed"
        value = os.environ.get(self.key, "").strip()
        if not value:
            raise MissingKey(
                f"model `{self.name}` needs a key: set the environment variable {self.key} "
                f"(export {self.key}=...), then `orchestrator models check {self.name}`"
            )
        return value

    def secrets(self) -> dict[str, str]:
        """Variable -> value of this model's key where it is set, to be redacted."""
        value = os.environ.get(self.key, "").strip() if self.key else ""
        return {self.key: value} if self.key and value else {}


DEFAULT_MAX_TOKENS = 32_000
"""Output limit where the Anthropic protocol demands one and the roster does not know the model's;
all Claude models since 4 allow it."""
