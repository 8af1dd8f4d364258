"""Names, files, keys, prices, identities."""

import pytest

from orchestrator.models.entry import MissingKey
from orchestrator.models.knobs import UnknownKnob
from orchestrator.models.roster import BadConfig, UnknownModel, load_roster
from orchestrator.models.stories import STORIES
from transcripts.records import Usage

BUILT_IN = load_roster()


@pytest.fixture
def user_file(tmp_path):
    def write(text):
        path = tmp_path / "models.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("ORCHESTRATOR_CONFIG", raising=False)
    for entry in BUILT_IN:
        if entry.key:
            monkeypatch.delenv(entry.key, raising=False)


def test_every_story_is_a_built_in_model_of_the_scripted_route():
    scripted = {entry.name for entry in BUILT_IN if entry.is_scripted}
    assert scripted == set(STORIES)
    assert {BUILT_IN.resolve(name).route for name in STORIES} == {"scripted"}


@pytest.mark.parametrize("name", ["glm-5", "qwen3.6"])
def test_the_models_of_the_first_rounds_are_known(name):
    assert BUILT_IN.resolve(name).context_tokens


@pytest.mark.parametrize(
    ("name", "protocol", "served", "route"),
    [
        ("openai/gpt-x", "openai", "gpt-x", "openai:https://api.openai.com/v1"),
        ("anthropic/claude-x", "anthropic", "claude-x", "anthropic:https://api.anthropic.com"),
        ("openrouter/z-ai/glm-5", "openai", "z-ai/glm-5", "openai:https://openrouter.ai/api/v1"),
        ("http://box:8000/v1#my/policy", "openai", "my/policy", "openai:http://box:8000/v1"),
    ],
)
def test_direct_forms_need_no_entry(name, protocol, served, route):
    entry = BUILT_IN.resolve(name)
    assert (entry.protocol, entry.model, entry.route) == (protocol, served, route)


def test_credentials_in_a_url_reach_neither_name_nor_route():
    identity, route = BUILT_IN.resolve("http://me:secret@box/v1#policy").entrant_identity()
    assert "secret" not in identity.model_dump_json() + route


def test_labels_tell_two_checkpoints_behind_one_name_apart():
    one, _ = BUILT_IN.resolve("http://box/v1#policy@step-100").entrant_identity()
    two, _ = BUILT_IN.resolve("http://box/v1#policy@step-200").entrant_identity()
    assert (one.name, one.label, two.label) == ("http://box/v1#policy", "step-100", "step-200")
    assert one.digest != two.digest


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownModel, match=r"glm-5 .*openrouter/<vendor>/<id>"):
        BUILT_IN.resolve("glm5")


def test_a_knob_with_a_typo_is_said_before_any_request():
    with pytest.raises(UnknownKnob, match="latency_ms"):
        BUILT_IN.resolve("oracle?latencyms=3")
    assert BUILT_IN.resolve("oracle?latency_ms=3").model == "oracle?latency_ms=3"


def test_effort_and_sampling_by_suffix():
    entry = BUILT_IN.resolve("claude-sonnet-5.5?effort=high&temperature=0.5")
    assert entry.effort == "high"
    assert entry.sampling == {"temperature": 0.5}
    params = entry.request_params()
    assert params["output_config"] == {"effort": "high"}
    assert params["temperature"] == 0.5
    with pytest.raises(BadConfig, match="known: low, medium"):
        BUILT_IN.resolve("claude-sonnet-5.5?effort=hihg")


def test_a_missing_key_names_variable_and_model():
    with pytest.raises(MissingKey, match=r"`glm-5` needs a key.*ZAI_API_KEY"):
        BUILT_IN.resolve("glm-5").read_key()


def test_keys_are_read_late_and_listed_for_redaction(monkeypatch):
    entry = BUILT_IN.resolve("glm-5")
    monkeypatch.setenv("ZAI_API_KEY", "sk-later")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or")
    assert entry.read_key() == "sk-later"
    assert BUILT_IN.secrets() == {"ZAI_API_KEY": "sk-later", "OPENROUTER_API_KEY": "sk-or"}
    assert "sk-later" not in repr(entry)


def test_the_users_file_adds_models_and_changes_fields(user_file):
    path = user_file(
        """
        [models.glm-5]
        base_url = "https://proxy.lab/v1"
        [models.policy]
        protocol = "openai"
        base_url = "http://node7:8000/v1"
        model = "policy"
        weights_digest = "sha256:00"
        provider = { order = ["z-ai"], allow_fallbacks = false }
        """
    )
    roster = load_roster(path)
    assert roster.resolve("glm-5").base_url == "https://proxy.lab/v1"
    assert roster.resolve("glm-5").key == "ZAI_API_KEY"
    policy = roster.resolve("policy")
    assert policy.request_params()["provider"] == {"order": ["z-ai"], "allow_fallbacks": False}
    assert "z-ai" in policy.route
    assert policy.entrant_identity()[0].weights_digest == "sha256:00"


def test_the_file_is_found_by_environment_and_by_home(user_file, monkeypatch, tmp_path):
    text = '[models.mine]\nprotocol = "openai"\nbase_url = "http://a/v1"\nmodel = "m"\n'
    monkeypatch.setenv("ORCHESTRATOR_CONFIG", str(user_file(text)))
    assert load_roster().resolve("mine").model == "m"
    monkeypatch.delenv("ORCHESTRATOR_CONFIG")
    home = tmp_path / "config" / "orchestrator"
    home.mkdir(parents=True)
    (home / "models.toml").write_text(text.replace("mine", "homely"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert load_roster().resolve("homely").model == "m"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[models.a]\nprotocol = "openai"\nmodel = "m"\nbase_ulr = "http://x"\n',
            r"models\.toml:4: models\.a\.base_ulr: no such field; did you mean `base_url`",
        ),
        (
            '[models."b.c"]\nmodel = "m"\nprotocol = "opnai"\n',
            r"models\.toml:3: models\.b\.c\.protocol: .*'anthropic' or 'gemini'",
        ),
        ('[models.a]\nmodel = "m"\n', r"models\.toml:1: models\.a\.protocol: Field required"),
        ("[models.a]\nmodel = \n", r"models\.toml:2: not valid TOML"),
        ('[modles.a]\nmodel = "m"\n', r"models\.toml:1: modles: no such field; .*`models`"),
        ("schema_version = 2\n", r"newer version"),
        (
            '[models.glm-5.prices]\nsource = "s"\ndate = 2026-01-01\nrates = [{ inptu = 1 }]\n',
            r"models\.toml:4: models\.glm-5\.prices\.rates\.0\.",
        ),
        (
            '[models.a]\nprotocol = "openai"\nmodel = "m"\n',
            r"models\.a\.base_url: missing",
        ),
        (
            '[models.glm-5]\neffort = "high"\n',
            r"models\.glm-5\.effort: `high` is none of its efforts",
        ),
    ],
)
def test_a_mistake_in_the_file_is_said_with_file_line_and_field(user_file, text, said):
    with pytest.raises(BadConfig, match=said):
        load_roster(user_file(text))


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(BadConfig, match=r"none\.toml"):
        load_roster(tmp_path / "none.toml")


def test_cost_counts_each_kind_and_is_unknown_rather_than_wrong():
    glm = BUILT_IN.resolve("glm-5")
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=1_000_000)
    assert glm.cost_usd(used) == pytest.approx(1.0 + 3.2 + 0.2)
    assert glm.cost_usd(Usage(cache_write_1h_tokens=1, output_tokens=1)) is None
    assert glm.cost_usd(Usage()) is None, "a provider that reports no usage"
    assert BUILT_IN.resolve("openai/new").cost_usd(used) is None
    assert BUILT_IN.resolve("oracle").cost_usd(used) == 0.0


def test_long_prompts_have_their_own_rates():
    grok = BUILT_IN.resolve("grok-4.7")
    assert grok.cost_usd(Usage(input_tokens=100_000)) == pytest.approx(0.2)
    assert grok.cost_usd(Usage(input_tokens=200_000)) == pytest.approx(0.8)


def test_every_price_has_source_and_date():
    priced = [entry for entry in BUILT_IN if entry.prices]
    assert priced
    assert all(entry.prices.source.startswith("https://") for entry in priced)
