"""Gemini's dialect through the gateway, and counting of tokens in two dialects."""

import json

from providers import JSON, KEY, STREAM, entry

PATH = "/gemini/v1beta/models/{}:{}"
ASK = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 40,
    "candidatesTokenCount": 10,
    "thoughtsTokenCount": 5,
}


def chunk(text, **more):
    part = {"content": {"parts": [{"text": text}]}, **more}
    value = {"candidates": [part], "modelVersion": "m-1", "usageMetadata": USAGE}
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


def gemini(session, upstream, **terms):
    return session("gemini", base_url=upstream.url, **terms)


def ask(one, model="m-1", verb="generateContent", body=ASK):
    sent = json.dumps(body).encode()
    token = {"x-goog-api-key": one.admission.token}
    return one.http.post(PATH.format(model, verb), content=sent, headers=token)


def test_a_stream_passes_byte_for_byte_and_is_kept(session, upstream):
    whole = [chunk("hel"), chunk("lo", finishReason="STOP")]
    upstream.answers = [(200, STREAM, whole)]
    one = gemini(session, upstream)
    assert ask(one, verb="streamGenerateContent?alt=sse&key=x").content == b"".join(whole)
    (seen,) = upstream.seen
    assert seen["path"] == "/v1beta/models/m-1:streamGenerateContent?alt=sse"
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["x-goog-api-key"] == KEY
    assert one.admission.token not in str(seen)
    (kept,) = one.exchanges
    assert (kept.error, kept.served_model, kept.rewrites) == ("", "m-1", ())
    used = kept.usage
    assert (used.input_tokens, used.cache_read_tokens) == (60, 40)
    assert (used.output_tokens, used.reasoning_tokens) == (15, 5)


def test_a_stream_without_a_finish_is_told(session, upstream):
    upstream.answers = [(200, STREAM, [chunk("hel")])]
    one = gemini(session, upstream)
    ask(one, verb="streamGenerateContent?alt=sse")
    assert one.exchanges[0].error == "the answer ended before it was whole"


def test_model_effort_and_tools_are_ours(session, upstream):
    upstream.answers = [(200, JSON, [chunk("x", finishReason="STOP")[6:]])]
    model = entry("gemini", params={"generationConfig": {"temperature": 0.5}})
    one = gemini(session, upstream, model=model)
    own = {"functionDeclarations": [{"name": "f"}]}
    tools = [{**own, "urlContext": {}}, {"googleSearch": {}}, {"codeExecution": {}}, 7]
    config = {"temperature": 2, "maxOutputTokens": 9}
    ask(one, model="small", body={**ASK, "tools": tools, "generationConfig": config})
    assert upstream.seen[0]["path"] == "/v1beta/models/m-1:generateContent"
    sent = json.loads(upstream.seen[0]["body"])
    assert sent["tools"] == [own]
    assert sent["generationConfig"] == {"temperature": 0.5, "maxOutputTokens": 9}
    assert set(one.exchanges[0].rewrites) == {
        "model:mapped",
        "pinned:generationConfig",
        "provider-tools:urlContext",
        "provider-tools:googleSearch",
        "provider-tools:codeExecution",
        "provider-tools:?",
    }


def test_errors_have_its_shape_and_nothing_else_is_reachable(session, upstream):
    one = gemini(session, upstream)
    wrong = one.http.post(PATH.format("m-1", "generateContent"), headers={"x-goog-api-key": "no"})
    assert wrong.json()["error"]["status"] == "UNAUTHENTICATED"
    for model, verb in (("m-1", "predict"), ("..%2f..%2fx", "generateContent")):
        lost = ask(one, model=model, verb=verb)
        assert (lost.status_code, lost.json()["error"]["status"]) == (404, "NOT_FOUND")
    assert not upstream.seen


def test_nothing_is_pinned_where_tokens_are_counted(session, upstream):
    upstream.answers = [(200, JSON, [b'{"totalTokens": 3}'])]
    model = entry("gemini", sampling={"generationConfig": {"temperature": 0.5}})
    one = gemini(session, upstream, model=model)
    assert ask(one, verb="countTokens").json() == {"totalTokens": 3}
    assert json.loads(upstream.seen[0]["body"]) == ASK
    upstream.answers = [(200, JSON, [b'{"input_tokens": 3}'])]
    claude = session("anthropic", model=entry("anthropic", sampling={"temperature": 0.5}))
    asked = [{"role": "user", "content": "hi"}]
    assert claude.anthropic().messages.count_tokens(model="m-1", messages=asked).input_tokens == 3
    assert json.loads(upstream.seen[1]["body"]) == {"model": "m-1", "messages": asked}
    assert one.admission.totals().cost_usd == claude.admission.totals().cost_usd == 0.0
