import json

from transcripts.redact import Secrets

KEY = 'sk-a"b\\c-0123456789'


def test_a_secret_is_replaced_at_any_depth_of_json() -> None:
    secrets = Secrets({"ZAI_API_KEY": KEY})
    inner = json.dumps({"command": f"curl -H {KEY}"})
    outer = json.dumps({"arguments": inner})
    assert secrets.found_in(json.dumps({"text": outer}).encode())
    replaced = secrets.replace_text(outer)
    assert "0123456789" not in replaced
    assert json.loads(json.loads(replaced)["arguments"])["command"] == (
        "curl -H [secret ZAI_API_KEY]"
    )


def test_keys_and_lists_are_searched_and_the_rest_is_untouched() -> None:
    secrets = Secrets({"K": "secret-value"})
    value = {"secret-value": ["a", {"b": "x secret-value y"}], "n": 1, "none": None}
    assert secrets.replace(value) == {
        "[secret K]": ["a", {"b": "x [secret K] y"}],
        "n": 1,
        "none": None,
    }


def test_the_longer_of_two_secrets_wins() -> None:
    secrets = Secrets({"SHORT": "abcdefgh", "LONG": "abcdefgh-ijkl"})
    assert secrets.replace_text("abcdefgh-ijkl abcdefgh") == "[secret LONG] [secret SHORT]"


def test_placeholders_and_what_only_looks_like_a_secret_stay() -> None:
    secrets = Secrets({"K": "EMPTY", "OTHER": "sk-0123456789"})
    text = "EMPTY sk-0123456780 9f86d081884c7d659a2feaa0c55ad015"
    assert secrets.replace_text(text) == text
