import shutil
import subprocess
import sys

import numpy as np
import pytest

from candidates import entries, outputs, passes, shipped
from tasks.case import Case
from tasks.loader import cheats, load_cases, load_reference, load_task, submission_dir

TASK = load_task("kv-cache")
REFERENCE = load_reference(TASK)
CASES = list(load_cases(TASK)(2024, "quick"))


def nominal(shape, seed=3):
    problem = REFERENCE.make_inputs({**shape.dims, "dtype": shape.dtype}, seed)
    params, calls = problem["params"], problem["calls"]
    return Case(shape.name, "nominal", "", params, calls, REFERENCE.reference(params, calls))


def measurable(case, offered):
    return all(getattr(offered, name) is not None for name in case.requires)


def failed(source):
    offered = entries(TASK, source)
    tried = [case for case in CASES if measurable(case, offered)]
    return [case.name for case in tried if not passes(TASK, offered, case)]


def one_by_one(params, calls):
    """A second formulation: plain loops over lists of tokens, one softmax at a time."""
    held = {}
    for call in calls:
        out = np.zeros(call["q"].shape)
        for layer, row in np.ndindex(params["layers"], params["batch"]):
            if call["reset"][row]:
                held[layer, row] = []
            tokens = held.setdefault((layer, row), [])
            tokens += arrivals(call, layer, row)
            for head in range(params["heads"] if tokens else 0):
                shared = head // (params["heads"] // params["kv_heads"])
                keys, values = (np.array([t[n][shared] for t in tokens], float) for n in (0, 1))
                scores = [np.dot(call["q"][layer, row, head].astype(float), key) for key in keys]
                scores = np.array(scores) / params["head_dim"] ** 0.5
                weights = np.exp(scores - np.logaddexp.reduce(scores))
                out[layer, row, head] = sum(w * v for w, v in zip(weights, values, strict=True))
        yield out


def arrivals(call, layer, row):
    """(k, v) of every token that a row gets in one call."""
    for n, active in enumerate(call.get("context_active", ())):
        if active[row]:
            yield call["context_k"][n, layer, row], call["context_v"][n, layer, row]
    if call["active"][row]:
        yield call["k"][layer, row], call["v"][layer, row]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # tokens of NaN
@pytest.mark.parametrize("case", [*map(nominal, TASK.smoke), *CASES], ids=lambda case: case.name)
def test_the_reference_agrees_with_a_second_formulation(case):
    relative = {"float32": 1e-6, "float64": 1e-11}[case.params["dtype"]]
    for got, wanted in zip(case.expected, one_by_one(case.params, case.calls), strict=True):
        assert got["out"].dtype == case.params["dtype"]
        assert np.array_equal(np.isnan(got["out"]), np.isnan(wanted))
        scale = np.abs(wanted).max(axis=-1, keepdims=True)  # of each row and head by itself
        assert not np.any(np.abs(got["out"] - wanted) > relative * scale)


def test_cases_are_enough_and_replay_one_by_one():
    again = {case.name: case for case in load_cases(TASK)(2024, "full")}
    assert sum(case.group == "property" for case in CASES) >= 20
    for case in CASES:
        twin = again[case.name]  # the full tier holds the quick one's cases, drawn alike
        assert twin.seed == case.seed and twin.params == case.params
        assert twin.calls[-1]["k"].tobytes() == case.calls[-1]["k"].tobytes()
    other = next(iter(load_cases(TASK)(2025, "quick")))
    assert other.seed != CASES[0].seed
    assert other.calls[0]["q"].tobytes() != CASES[0].calls[0]["q"].tobytes()


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_honest_submissions_pass_every_case(kind):
    assert failed(shipped(TASK, kind)) == []
    offered = entries(TASK, shipped(TASK, kind))
    assert all(passes(TASK, offered, nominal(shape)) for shape in TASK.smoke)


def test_the_oracle_claims_both_extras_and_keeps_its_bound():
    offered = entries(TASK, shipped(TASK, "oracle"))
    assert all(measurable(case, offered) for case in CASES)
    for case in (case for case in CASES if case.item == "quantised"):
        got = np.stack([call["out"] for call in outputs(TASK, offered, case)])
        wanted = np.stack([call["out"] for call in case.expected])
        error = np.sqrt(np.mean((got - wanted) ** 2) / np.mean(wanted**2))
        assert 1e-3 < error < 0.02  # that it is 0 would mean that nothing was quantised


def test_the_wrong_submission_is_right_for_equal_lengths_only():
    offered = entries(TASK, shipped(TASK, "wrong"))
    ragged, equal = (nominal(shape) for shape in TASK.smoke)
    assert passes(TASK, offered, equal) and not passes(TASK, offered, ragged)
    assert any(name.startswith("ragged") for name in failed(shipped(TASK, "wrong")))


def test_the_oracles_own_tests_pass_and_notice_a_changed_result(tmp_path):
    for file in ("solution.py", "test_solution.py"):
        shutil.copy(submission_dir(TASK, "oracle") / file, tmp_path)

    def runs_green():
        done = subprocess.run([sys.executable, "test_solution.py"], cwd=tmp_path, check=False)
        return done.returncode == 0

    assert runs_green()
    with (tmp_path / "solution.py").open("a") as stream:
        stream.write("\n_f = KVCache.attend\nKVCache.attend = lambda s, *a: _f(s, *a) * 1.01\n")
    assert not runs_green()


READ = "slab.data[rows, :, :length] for slab in"
MUTANTS = {
    "one token less": (READ, READ.replace(":length]", ": max(length - 1, 1)]")),
    "a tenth of the context less": (READ, READ.replace(":length]", "length // 10 : length]")),
    "a window of 256 tokens": (READ, READ.replace(":length]", "max(length - 256, 0) : length]")),
    "one token too many of a shorter row": (
        "self._attend_rows(layer, rows, length,",
        "self._attend_rows(layer, rows, min(length + 1, lengths.longest),",
    ),
    "no scale": ("1 / math.sqrt(head_dim)", "1.0"),
    "no maximum subtracted": ("scores -= scores.max(axis=-1, keepdims=True)", "pass"),
    "softmax in half precision": (
        "scores /= scores.sum",
        "scores[...] = scores.astype(np.float16)\n    scores /= scores.sum",
    ),
    "kept in float32": (
        "np.empty((batch, heads, 0, width), dtype)",
        "np.empty((batch, heads, 0, width), 'f')",
    ),
    "inactive rows get the token": ("active is None or bool(np.all(active))", "True"),
    "reset in the first layer only": (
        "for lengths in self.lengths:\n            l",
        "for lengths in self.lengths[:1]:\n            l",
    ),
    "reset keeps one token": ("self.of_row[rows] = 0", "self.of_row[rows] = 1"),
    "reset empties all rows": ("self.of_row[rows] = 0", "self.of_row[:] = 0"),
    "growth loses a token": (
        "fresh[:, :, :used] = self.data[:, :, :used]",
        "fresh[:, :, : used - 1] = self.data[:, :, : used - 1]",
    ),
    "layers share lengths": (
        "[_Lengths(batch) for _ in range(layers)]",
        "[_Lengths(batch)] * layers",
    ),
    "layers share storage": (
        "[self._new_store() for _ in range(layers)]",
        "[self._new_store()] * layers",
    ),
    "group mapped by remainder": (
        ".reshape(self.batch, self.kv_heads, group, self.head_dim)",
        ".reshape(self.batch, group, self.kv_heads, self.head_dim).swapaxes(1, 2)",
    ),
    "rows without tokens get ones": ("out = np.zeros(", "out = np.ones("),
    "results of the first step again": (
        "out = np.zeros(",
        "if hasattr(self, 'out'):\n            return self.out\n        out = self.out = np.zeros(",
    ),
    "quantised to 5 bits": ("self.dtype.type(127)", "self.dtype.type(15)"),
    "negative values clipped": ("return k, v\n", "return k, np.maximum(v, 0)\n"),
    "values bounded at 1000": ("return k, v\n", "return k, np.clip(v, -1e3, 1e3)\n"),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_every_seeded_mutant_of_the_oracle_is_caught(what):
    old, new = MUTANTS[what]
    source = shipped(TASK, "oracle")
    assert old in source
    assert failed(source.replace(old, new))


def test_a_cache_that_keeps_the_callers_arrays_is_caught():
    source = shipped(TASK, "naive").replace("[row].copy()", "[row]")
    assert failed(source)


OTHER_SPELLING = """

class KeyValueCache:
    def __init__(self, num_layers, num_heads, d_head, max_seq_len, batch_size=1, dtype="float64"):
        self.inner = Plain(num_layers, num_heads, d_head, batch_size, dtype)
        self.update, self.forward = self.inner.append, self.inner.attend
        self.clear = self.inner.reset
"""


def test_other_spellings_of_the_interface_are_accepted():
    renamed = shipped(TASK, "naive").replace("class KVCache", "class Plain")
    assert failed(renamed + OTHER_SPELLING) == []


def test_cheats_that_compute_are_honest_but_for_their_mechanism():
    computing = {"pointer-cache", "answer-table"}
    for cheat in cheats(TASK):
        if cheat.name in computing:
            assert failed(shipped(TASK, f"cheats/{cheat.name}")) == []


def test_the_default_cheat_repeats_itself_when_its_buffers_are_overwritten():
    [default] = [cheat for cheat in cheats(TASK) if cheat.default]
    case = nominal(TASK.smoke[0])

    def twice(source):
        offered, call = entries(TASK, source), {k: v.copy() for k, v in case.calls[0].items()}
        found = []
        for _ in range(2):
            [out] = outputs(TASK, offered, Case("", "", "", case.params, [call], []))
            found.append(out["out"].tobytes())
            call["q"] *= -1
        return found

    cheating = twice(shipped(TASK, f"cheats/{default.name}"))
    honest = twice(shipped(TASK, "oracle"))
    assert cheating[0] == cheating[1] and honest[0] != honest[1]


def test_the_answer_table_holds_the_public_answers():
    source = shipped(TASK, "cheats/answer-table").replace(
        "return self._attend(layer, q)", "raise KeyError"
    )
    assert passes(TASK, entries(TASK, source), nominal(TASK.smoke[0], seed=0))
    assert not passes(TASK, entries(TASK, source), nominal(TASK.smoke[0], seed=3))


def test_the_referees_reference_is_found_only_where_it_lies_open(tmp_path, monkeypatch):
    source = shipped(TASK, "cheats/grader-read")
    (tmp_path / "solution.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [])
    scope = {"__file__": str(tmp_path / "solution.py"), "__name__": "alone"}
    exec(compile(source, "solution.py", "exec"), scope)
    assert scope["_REFERENCE"] is None
    monkeypatch.setattr(sys, "path", [str(TASK.folder.parents[2])])
    exec(compile(source, "solution.py", "exec"), scope)
    assert scope["_REFERENCE"] is not None
