"""The published round in, its table out; and bad round files."""

import json
from pathlib import Path

import pytest

from orchestrator.boards.round_file import BadRound, find_round, read_round
from orchestrator.boards.round_markdown import round_markdown
from orchestrator.boards.rounds import Showing, mismatches, pairs, task_winner

PUBLISHED = Path(__file__).parents[3].parent / "shared/cases/rounds/glm-5-vs-qwen3.6-27b.json"


@pytest.fixture
def published():
    if not PUBLISHED.is_file():
        pytest.skip("the published round is not beside this checkout")
    return read_round(PUBLISHED)


@pytest.fixture
def small(tmp_path):
    """Writes a round of two models with the given overalls, and reads it."""

    def write(*overalls, models=("a", "b"), **more):
        tasks = {
            f"t{i}": {"dimensions": {"Correctness": list(points)}, "overall": list(points)}
            for i, points in enumerate(overalls)
        }
        path = tmp_path / "r.json"
        path.write_text(json.dumps({"round": "r", "models": models, "tasks": tasks, **more}))
        return read_round(path)

    return write


def test_the_published_table_is_reproduced(published):
    (pair,) = pairs(published)
    assert {task: r.overall for task, r in published.tasks.items()} == {
        "kv-cache": (82, 94),
        "layernorm-backward": (82, 93),
        "fused-softmax-topk": (80, 78),
    }
    assert pair.rounded == (81, 88)
    assert pair.margins == {"kv-cache": 12, "layernorm-backward": 11, "fused-softmax-topk": -2}
    assert (pair.rounded_margin, pair.average_margin) == (7, pytest.approx(7.0))
    assert (pair.winner, pair.tasks_won) == ("qwen3.6-27b", (1, 2))
    assert mismatches(published) == []


def test_given_overalls_are_kept_beside_the_means_of_their_dimensions(published):
    means = {
        task: tuple(round(r.computed(model), 1) for model in (0, 1))
        for task, r in published.tasks.items()
    }
    assert means == {
        "kv-cache": (83.1, 93.7),
        "layernorm-backward": (81.5, 92.5),
        "fused-softmax-topk": (85.4, 80.6),
    }


def test_the_published_round_says_that_thinking_levels_differ(published):
    assert published.unfair == ["effort differs: glm-5 off, qwen3.6-27b high"]


def test_the_ideal_hybrid_takes_the_best_of_each_dimension(published):
    best, overall = published.tasks["fused-softmax-topk"].hybrid()
    assert best["Correctness"] == (95, (1,))
    assert best["CUDA Depth"] == (92, (0,))
    assert overall == pytest.approx((95 + 90 + 88 + 92 + 90 + 88 + 85) / 7)


def test_a_table_that_differs_from_what_the_file_expects_is_told(small):
    expected = {
        "average": [50, 60],
        "margins": {"t0": 10},
        "average_margin": 10,
        "winner": "a",
        "tasks_won": [0, 1],
    }
    assert mismatches(small([50, 60], expected=expected)) == [
        "the file expects winner a, its points give b"
    ]


def test_averages_round_half_up_and_the_unrounded_margin_stays(small):
    (pair,) = pairs(small([80, 82], [81, 82]))
    assert pair.rounded == (81, 82)  # 80.5 upwards
    assert pair.rounded_margin == 1
    assert pair.average_margin == pytest.approx(1.5)


def test_equal_averages_are_a_draw(small):
    (pair,) = pairs(small([80, 82], [82, 80]))
    assert pair.winner is None
    assert (pair.tasks_won, pair.drawn) == ((1, 1), 0)


def test_missing_points_are_left_out_of_both_averages(small):
    (pair,) = pairs(small([80, 90], [10, None]))
    assert pair.rounded == (80, 90)
    assert pair.margins["t1"] is None


def test_three_models_give_all_pairs(small):
    a_round = small([1, 2, 3], models=("a", "b", "c"))
    assert [(p.first, p.second, p.winner) for p in pairs(a_round)] == [
        ("a", "b", "b"),
        ("a", "c", "c"),
        ("b", "c", "c"),
    ]


def test_a_draw_at_the_top_has_no_winner():
    assert task_winner([90, 90, 10]) is None
    assert task_winner([90, None]) is None
    assert task_winner([10, 90]) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "r.json:1: not JSON"),
        ('{"round": "r", "model": ["a", "b"], "tasks": {}}', "did you mean `models`?"),
        (
            '{"round": "r", "models": ["a", "b"], "tasks": '
            '{"t": {"dimensions": {}, "overall": [1]}}}',
            "overall has 1 values for 2 models",
        ),
        (
            '{"round": "r", "models": ["a", "b"], "tasks": '
            '{"t": {"dimensions": {}, "overall": [1, 101]}}}',
            "tasks.t.overall.1",
        ),
        (
            '{"round": "r", "models": ["a", "a"], "tasks": {"t": {"dimensions": {}, '
            '"overall": [1, 1]}}}',
            "stands twice",
        ),
    ],
)
def test_a_bad_round_file_says_where_and_what(tmp_path, text, said):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(BadRound, match=r"r\.json") as caught:
        read_round(path)
    assert said in str(caught.value)


def test_a_round_is_found_by_name_and_the_nearest_is_offered(tmp_path):
    (tmp_path / "rounds").mkdir()
    (tmp_path / "rounds" / "spring.json").write_text("{}")
    assert find_round("spring", tmp_path) == tmp_path / "rounds" / "spring.json"
    with pytest.raises(BadRound, match="did you mean spring"):
        find_round("sprnig", tmp_path)


def test_overlapping_intervals_are_marked_as_a_tie(small):
    a_round = small([80, 81])
    showings = (Showing(low=78, high=82), Showing(low=79, high=83))
    tied = a_round.tasks["t0"].model_copy(update={"showings": showings})
    apart = tied.model_copy(update={"showings": (showings[0], Showing(low=82.5, high=83))})
    for result, mark in ((tied, "+1 ≈"), (apart, "+1 |")):
        text = round_markdown(a_round.model_copy(update={"tasks": {"t0": result}}))
        assert f"| b | {mark}" in text


def test_the_printed_round_holds_the_table_the_unfairness_and_no_more_bytes_twice(published):
    text = round_markdown(published)
    for line in (
        "| kv-cache | 82 (dimensions: 83.1) | 94 (dimensions: 93.7) | qwen3.6-27b | +12 |",
        "| fused-softmax-topk | 80 (dimensions: 85.4) | 78 (dimensions: 80.6) | glm-5 | -2 |",
        "| **average** | **81** (81.33) | **88** (88.33) | **qwen3.6-27b** | +7 |",
    ):
        assert line in text
    assert text.index("effort differs") < text.index("## Scoreboard")
    assert "Not stated, so not checked: hardware, toolchain" in text
    assert text == round_markdown(published)
