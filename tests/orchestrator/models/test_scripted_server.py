"""The scripted server seen by other clients: plain SDK calls, whole answers, errors, the port."""

import json

import anthropic
import httpx2
import openai
import pytest

from orchestrator.models.knobs import Knobs, UnknownKnob
from orchestrator.models.scripted import PortInUse, ScriptedServer
from tasks.loader import load_task

PROMPT = load_task("fused-softmax-topk").prompt
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


@pytest.fixture
def openai_sdk(server):
    with openai.OpenAI(base_url=server.base_url("openai"), api_key="any", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
def anthropic_sdk(server):
    url = server.base_url("anthropic")
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as sdk:
        yield sdk


def ask_openai(sdk, model="oracle", **more):
    return sdk.chat.completions.create(
        model=model, messages=[{"role": "user", "content": PROMPT}], **more
    )


def test_models_are_listed(openai_sdk):
    assert "flaky" in [model.id for model in openai_sdk.models.list()]


def test_a_whole_openai_answer(openai_sdk):
    answer = ask_openai(openai_sdk, tools=[TOOL, TOOL])
    assert answer.choices[0].message.tool_calls[0].function.name == "bash"
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_whole_anthropic_answer(anthropic_sdk):
    answer = anthropic_sdk.messages.create(
        model="oracle", max_tokens=100, messages=[{"role": "user", "content": PROMPT}]
    )
    assert answer.content[-1].input == {"command": "ls -la"}
    assert answer.stop_reason == "tool_use"


def test_the_sdks_own_streams_agree_with_whole_answers(openai_sdk, anthropic_sdk):
    text = "".join(
        chunk.choices[0].delta.content or ""
        for chunk in ask_openai(openai_sdk, stream=True)
        if chunk.choices
    )
    assert text == ask_openai(openai_sdk).choices[0].message.content
    question = {
        "model": "oracle",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": PROMPT}],
    }
    with anthropic_sdk.messages.stream(**question) as stream:
        streamed = stream.get_final_message().model_dump()
    whole = anthropic_sdk.messages.create(**question).model_dump()
    fields = ("role", "model", "stop_reason")
    assert [streamed[field] for field in fields] == [whole[field] for field in fields]
    assert [block["type"] for block in streamed["content"]] == [
        block["type"] for block in whole["content"]
    ]
    assert streamed["content"][-1]["input"] == whole["content"][-1]["input"]


def test_an_unknown_model_is_404_and_names_the_known(openai_sdk):
    with pytest.raises(openai.NotFoundError, match="oracle"):
        ask_openai(openai_sdk, model="gpt")


def test_an_unknown_knob_is_400(openai_sdk):
    with pytest.raises(openai.BadRequestError, match="did you mean seed"):
        ask_openai(openai_sdk, model="oracle?sede=1")


def test_a_request_of_another_form_is_400(openai_sdk):
    with pytest.raises(openai.BadRequestError, match="not a request"):
        openai_sdk.post("/chat/completions", cast_to=object, body={"model": "oracle"})


def test_rates_are_drawn_the_same_for_the_same_seed_and_request():
    def outcomes(seed):
        with ScriptedServer(Knobs(e500=0.5, seed=seed)) as server:
            url = server.base_url("openai")
            with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as sdk:
                return [_succeeds(sdk, f"try {number}") for number in range(20)]

    first = outcomes(1)
    assert first == outcomes(1)
    assert first != outcomes(2)
    assert set(first) == {True, False}


def _succeeds(sdk, text):
    try:
        sdk.chat.completions.create(model="oracle", messages=[{"role": "user", "content": text}])
    except openai.InternalServerError:
        return False
    return True


def test_a_port_in_use_is_a_users_error_with_a_way_out():
    with ScriptedServer() as first:
        port = int(first.base_url("anthropic").rsplit(":", 1)[1])
        with pytest.raises(PortInUse, match="--port 0"):
            ScriptedServer(port=port).start()


def test_a_stopped_server_gives_its_port_back():
    with ScriptedServer() as first:
        port = int(first.base_url("anthropic").rsplit(":", 1)[1])
    with ScriptedServer(port=port):
        pass


def test_knobs_refuse_words_for_numbers():
    with pytest.raises(UnknownKnob, match="needs a number"):
        Knobs().overridden([("latency_ms", "slow")])


SHELL = {
    "type": "function",
    "name": "exec_command",
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "login": {"type": "boolean"}},
        "required": ["cmd", "login"],
    },
}


def test_responses_streamed_and_whole_agree_and_speak_through_a_foreign_shell(openai_sdk):
    question = {"model": "oracle", "input": PROMPT, "tools": [SHELL], "store": False}
    whole = openai_sdk.responses.create(**question)
    with openai_sdk.responses.stream(**question) as stream:
        streamed = stream.get_final_response()
    assert [item.type for item in streamed.output] == ["reasoning", "message", "function_call"]
    assert streamed.output_text == whole.output_text
    assert streamed.output[-1].arguments == whole.output[-1].arguments
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    call = whole.output[-1]
    assert json.loads(call.arguments) == {"cmd": "ls -la", "login": False}
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "total 0"}
    history = [{"role": "user", "content": PROMPT}, *whole.output, answer]
    following = openai_sdk.responses.create(**{**question, "input": history})
    assert json.loads(following.output[-1].arguments)["cmd"] == "cat reference.py"


def test_gemini_counts_answers_where_calls_have_no_ids(server):
    tool = {"name": "run_shell_command", "parameters": {"properties": {"command": {}}}}
    contents = [{"role": "user", "parts": [{"text": PROMPT}]}]
    url = f"{server.base_url('gemini')}/models/oracle:generateContent"
    commands = []
    for _ in range(2):
        body = {"contents": contents, "tools": [{"functionDeclarations": [tool]}]}
        answer = httpx2.post(url, json=body).json()["candidates"][0]["content"]
        call = answer["parts"][-1]["functionCall"]
        commands.append(call["args"]["command"])
        del call["id"]
        reply = {"functionResponse": {"name": call["name"], "response": {"output": ""}}}
        contents += [answer, {"role": "user", "parts": [reply]}]
    assert commands == ["ls -la", "cat reference.py"]


def test_a_side_request_without_tools_does_not_play_the_story(openai_sdk):
    messages = [
        {"role": "system", "content": "Write a title."},
        {"role": "user", "content": PROMPT},
    ]
    answer = openai_sdk.chat.completions.create(model="oracle", messages=messages)
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content.startswith("Work on ")
