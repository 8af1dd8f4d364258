"""`serve-scripted`: the built-in models behind a real HTTP server, for any client."""

from typing import Annotated

import typer

from orchestrator.commands.options import JsonOption, printer

_Rate = Annotated[float, typer.Option(min=0, max=1, help="Rate, 0 to 1.")]


def serve_scripted(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8378,
    latency_ms: Annotated[float, typer.Option(min=0, help="Before the first byte.")] = 0,
    chunk_ms: Annotated[float, typer.Option(min=0, help="Between chunks.")] = 0,
    e429: _Rate = 0,
    e500: _Rate = 0,
    e529: _Rate = 0,
    drop: _Rate = 0,
    cut: _Rate = 0,
    malformed: _Rate = 0,
    empty: _Rate = 0,
    retry_after_s: Annotated[float, typer.Option(min=0, help="What a 429 asks for.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the faults' dice.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Serve the built-in models on this machine until interrupted, in both protocols.

    OpenAI chat completions and Anthropic messages, streamed or not. Faults are drawn from the seed
    and the request: 429, 500, 529, streams that break (drop) or end early (cut), malformed chunks,
    empty replies. A client can set the same knobs for itself: the model `oracle?latency_ms=200`.

    Example: orchestrator serve-scripted --port 8378 --latency-ms 200 --e429 0.1
    """
    import signal
    import threading

    from orchestrator.models.knobs import Knobs
    from orchestrator.models.scripted import ScriptedServer

    knobs = Knobs(
        latency_ms=latency_ms,
        chunk_ms=chunk_ms,
        e429=e429,
        e500=e500,
        e529=e529,
        drop=drop,
        cut=cut,
        malformed=malformed,
        empty=empty,
        retry_after_s=retry_after_s,
        seed=seed,
    )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with ScriptedServer(knobs, port=port) as server:
        urls = {protocol: server.base_url(protocol) for protocol in ("openai", "anthropic")}
        printer(ctx, as_json).emit(
            urls,
            lambda console: console.print(
                f"OpenAI base URL:    {urls['openai']}\n"
                f"Anthropic base URL: {urls['anthropic']}\n"
                f"As a model here:    {urls['openai']}#oracle\n"
                "Ctrl-C ends it."
            ),
        )
        ended.wait()
