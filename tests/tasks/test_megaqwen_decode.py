"""megaqwen-decode: reference, adapter, cases, shipped submissions, and what must not pass.

The reference is held against a second formulation: the whole sequence is computed anew for each
token, in float64, with a mask over all pairs, and RoPE by complex numbers. The oracle's kernel runs
thread by thread (``tests/support/persistent_on_cpu.h``) on a smaller grid.
"""

import ctypes
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.kernel_names import authored_of
from graders.pipeline import RefereeGrader
from graders.roofline import work
from tasks import loader
from tasks.case import Case
from tasks.spec import Shape, Task
from tasks.tensors import TensorReference, as_array
from transcripts.words import GradeResult

torch: Any = pytest.importorskip("torch")

NAME, SUPPORT = "megaqwen-decode", Path(__file__).parent.parent / "support"
LAYERS = 2
LEAVES = ("hidden", "k_rows", "v_rows")
Layout = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task(NAME)


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    found = loader.load_reference(task)
    assert isinstance(found, TensorReference)
    return found


@pytest.fixture(scope="module")
def public(reference: TensorReference) -> ModuleType:
    return reference.module


@pytest.fixture(scope="module")
def adapter(task: Task) -> ModuleType:
    return loader.execute(task, "public/adapter.py", ("setup", "run"))


def shape(ctx: int, steps: int, dealt: int = 1, layers: int = LAYERS) -> dict[str, Any]:
    return {"ctx": ctx, "steps": steps, "layers": layers, "dealt": dealt, "dtype": "bfloat16"}


def drawn(public: ModuleType, sized: dict[str, Any], seed: int = 3) -> Any:
    """Params with weights, and the inputs of the one call, as tensors."""
    made = public.make_inputs(sized, seed)
    made["params"]["weights"] = public.make_weights(sized, seed)
    return made["params"], made["calls"][0]


def offered(module: Any, **more: Any) -> SimpleNamespace:
    names = ("Model", "prefill", "decode_steps", "import_caches", "cache_rows")
    return SimpleNamespace(**{name: getattr(module, name, None) for name in names}, **more)


def shipped(task: Task, kind: str) -> SimpleNamespace:
    folder = task.folder / "submissions" / kind
    spec = importlib.util.spec_from_file_location(f"_{kind}", folder / "solution.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("kernels", None)
        sys.dont_write_bytecode = writes
    return offered(module)


def off(one: Any, other: Any) -> float:
    """rms of the difference over that of the second."""
    one, other = one.double(), other.double()
    return float(((one - other).square().mean() / other.square().mean()).sqrt())


def passes(task: Task, got: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    given, right = ({n: as_array(v) for n, v in each.items()} for each in (got, wanted))
    return all(close.passed for close in compare_all(task, None, given, right, {}))


# --- the reference -------------------------------------------------------------------------------


def whole_sequence(weights: Mapping[str, Any], inputs: Any, layers: int) -> tuple[Any, Any, Any]:
    """Hidden of every token, keys and values of every layer: all at once, (T, 1024) in float64."""
    T = len(inputs)
    places = torch.arange(T, dtype=torch.float64)[:, None]
    turns = torch.polar(
        torch.ones(T, 64, dtype=torch.float64),
        places / 10000.0 ** (torch.arange(64, dtype=torch.float64) / 64),
    )
    hides = torch.full((T, T), -math.inf, dtype=torch.float64).triu(1)
    x, all_keys, all_values = inputs.double(), [], []
    for layer in range(layers):
        w = {
            name.rpartition(".")[2]: value.double()
            for name, value in weights.items()
            if name.startswith(f"blocks.{layer}.")
        }

        def normed(z: Any, by: Any) -> Any:
            return z / (z.pow(2).sum(-1, keepdim=True) / z.shape[-1] + 1e-6).sqrt() * by

        def rotated(z: Any) -> Any:
            pairs = torch.complex(z[..., :64], z[..., 64:]) * turns[:, None]
            return torch.cat([pairs.real, pairs.imag], dim=-1)

        y = normed(x, w["input_ln"])
        q = rotated(normed((y @ w["q_proj"].T).view(T, 16, 128), w["q_norm"]))
        k = rotated(normed((y @ w["k_proj"].T).view(T, 8, 128), w["k_norm"]))
        v = (y @ w["v_proj"].T).view(T, 8, 128)
        heads = []
        for head in range(16):
            scores = q[:, head] @ k[:, head // 2].T * 128**-0.5 + hides
            heads.append(torch.exp(scores - scores.logsumexp(1, keepdim=True)) @ v[:, head // 2])
        x = x + torch.cat(heads, dim=1) @ w["o_proj"].T
        y = normed(x, w["post_ln"])
        gate = y @ w["gate_proj"].T
        x = x + (gate / (1 + torch.exp(-gate)) * (y @ w["up_proj"].T)) @ w["down_proj"].T
        all_keys.append(k)
        all_values.append(v)
    return x, torch.stack(all_keys), torch.stack(all_values)


def test_reference_agrees_with_the_whole_sequence_computed_anew(public: ModuleType) -> None:
    params, call = drawn(public, shape(7, 3, dealt=0))
    (found,) = public.reference(params, [call])
    seed = params["prefill_seed"]
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(1024, generator=rng).bfloat16()
    inputs: list[Any] = []
    for start, steps, key in ((0, 7, seed + 1), (7, 3, int(call["seed"]) + 2)):
        rng.manual_seed(key)
        for _ in range(start, start + steps):
            inputs.append((torch.randn(1024, generator=rng).bfloat16() + hidden) / 2)
            all_hidden, k, v = whole_sequence(params["weights"], torch.stack(inputs), LAYERS)
            hidden = all_hidden[-1]
        hidden = hidden.bfloat16()
    assert off(found["hidden"], hidden) < 3e-3  # both are bfloat16, and so is what is stored
    for name, rows in (("k_rows", k), ("v_rows", v)):
        assert off(found[name], rows[:, 7:].transpose(1, 2)) < 3e-3


def test_dealt_caches_go_on_like_the_prefill_that_they_come_from(public: ModuleType) -> None:
    params, call = drawn(public, shape(9, 2, dealt=0))
    (wanted,) = public.reference(params, [call])
    hidden, k, v = public._state(params, params["weights"])
    rows = {f"state.{n}": torch.stack([c[:, :9] for c in held]) for n, held in (("k", k), ("v", v))}
    dealt = {**params, "prefill_seed": None, "weights": {**params["weights"], **rows}}
    (found,) = public.reference(dealt, [{**call, "hidden": hidden}])
    assert all(torch.equal(found[name], wanted[name]) for name in LEAVES)


def test_the_public_functions_say_what_the_reference_says(
    public: ModuleType, adapter: ModuleType
) -> None:
    for dealt in (0, 1):
        params, call = drawn(public, shape(6, 2, dealt=dealt))
        (wanted,) = public.reference(params, [call])
        found = adapter.run(offered(public), adapter.setup(offered(public), params), call)
        assert all(torch.equal(found[name], wanted[name]) for name in LEAVES)
    params, _ = drawn(public, shape(6, 2, dealt=0))
    model = adapter.setup(offered(public), params).model
    with torch.no_grad():
        hidden, k, v = public.run(model, 6, 2, seed=5)
        begun = public.prefill(model, 6, seed=5)
        again = public.decode_steps(model, *begun, 6, 2, seed=5)
    assert torch.equal(hidden, again)
    assert all(map(torch.equal, (*k, *v), (*begun[1], *begun[2])))


def test_reference_leaves_weights_and_caches_alone(public: ModuleType) -> None:
    params, call = drawn(public, shape(20, 2))
    before = {name: value.clone() for name, value in params["weights"].items()}
    public.reference(params, [call, call])
    assert all(torch.equal(params["weights"][name], value) for name, value in before.items())


def test_every_seed_has_its_weights_where_contexts_are_long(public: ModuleType) -> None:
    sized = shape(public.SHORT, 1, layers=1)
    one, again, other = (public.make_weights(sized, seed) for seed in (4, 4, 6))
    for name, value in one.items():
        assert torch.equal(value, again[name])
        assert not torch.equal(value, other[name])


# --- what passes, and what must not --------------------------------------------------------------


class InTorch:
    """The functions of the public deck with every intermediate ``rounded``, and one ``fault``."""

    def __init__(self, public: ModuleType, fault: str = "") -> None:
        self._public, self._fault = public, fault
        self.Model = public.Model
        self.import_caches = self.cache_rows = None

    def prefill(self, model: Any, n: int, seed: int) -> Any:
        size = (8, model.max_seq, 128)
        k, v = ([torch.zeros(size).bfloat16() for _ in model.blocks] for _ in range(2))
        return self._steps(model, self._public.first_hidden(seed), k, v, 0, n, seed + 1), k, v

    def decode_steps(self, model: Any, hidden: Any, k: Any, v: Any, at: int, n: int, key: int):
        if self._fault == "zeros":
            return torch.zeros_like(hidden)
        if self._fault == "state not updated":
            k, v = ([cache.clone() for cache in held] for held in (k, v))
        key += self._fault == "noise of another seed"
        return self._steps(model, hidden, k, v, at, n, key + 2)

    def _steps(self, model: Any, x: Any, k: Any, v: Any, at: int, n: int, key: int) -> Any:
        turns = self._public._turns(at, n, "cpu")
        for step, noise in enumerate(self._public.noise_of(n, key)):
            share = 0.4 if self._fault == "less of the hidden" else 0.5
            x = rounded(0.5 * noise.float() + share * x.float())
            for block, keys, values in zip(model.blocks, k, v, strict=True):
                x = self._block(block, x, keys, values, at + step, turns[step])
        return x.bfloat16()

    def _block(self, block: Any, x: Any, keys: Any, values: Any, at: int, turn: Any) -> Any:
        fault = self._fault
        w = {name: value.float() for name, value in block.named_parameters()}
        y = norm(x, w["input_ln"])
        q, k, v = (rounded(w[f"{n}_proj"] @ y).view(-1, 128) for n in "qkv")
        q = q if fault == "no q_norm" else norm(q, w["q_norm"])
        q, k = (rounded(self._turned(z, turn)) for z in (q, norm(k, w["k_norm"])))
        if fault != "stale row":
            keys[:, at], values[:, at] = k.bfloat16(), v.bfloat16()
        seen = self._seen(q, keys, values, at)
        if fault == "stale row":  # written when it is too late
            keys[:, at], values[:, at] = k.bfloat16(), v.bfloat16()
        if fault != "attention skipped":
            x = rounded(x + rounded(w["o_proj"] @ seen.reshape(-1)))
        y = norm(x, w["post_ln"])
        gate, up = rounded(w["gate_proj"] @ y), rounded(w["up_proj"] @ y)
        gate, up = (up, gate) if fault == "gate and up swapped" else (gate, up)
        inner = rounded(rounded(torch.nn.functional.silu(gate)) * up)
        return rounded(x + rounded(w["down_proj"] @ inner)) if fault != "no MLP" else x

    def _seen(self, q: Any, keys: Any, values: Any, at: int) -> Any:
        fault = self._fault
        first = {"a tenth of the context left out": at // 10, "a window": max(at - 31, 0)}
        last = at if fault == "own row left out" else at + 1
        k, v = (cache[:, first.get(fault, 0) : last].float() for cache in (keys, values))
        if fault == "caches of eight bits":
            k, v = (cache.to(torch.float8_e4m3fn).float() for cache in (k, v))
        if fault == "heads of another group":
            k, v = k.roll(1, 0), v.roll(1, 0)
        order = (2, 8) if fault == "query heads interleaved" else (8, 2)
        q = q.view(*order, 128)
        q = q.transpose(0, 1) if fault == "query heads interleaved" else q
        scores = rounded(q @ k.transpose(1, 2)) * (1 if fault == "no scale" else 128**-0.5)
        return rounded(rounded(scores.softmax(-1)) @ v)

    def _turned(self, z: Any, turn: Any) -> Any:
        if self._fault == "no RoPE":
            return z
        if self._fault != "RoPE of neighbours":
            return self._public._turned(z, turn)
        even, odd = z[..., ::2], z[..., 1::2]
        return torch.stack(
            [even * turn[0] - odd * turn[1], odd * turn[0] + even * turn[1]], -1
        ).view(z.shape)


def rounded(x: Any) -> Any:
    return x.bfloat16().float()


def norm(x: Any, weight: Any) -> Any:
    return rounded(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight)


FAULTS = (
    *("zeros", "state not updated", "noise of another seed", "less of the hidden", "no q_norm"),
    *("stale row", "attention skipped", "gate and up swapped", "no MLP", "a window", "no scale"),
    *("a tenth of the context left out", "own row left out", "caches of eight bits", "no RoPE"),
    *("heads of another group", "query heads interleaved", "RoPE of neighbours"),
)


@pytest.fixture(scope="module")
def draws(public: ModuleType) -> list[tuple[Any, Any, Any]]:
    """Of a short and of a longer context, with what is right."""
    found = []
    for sized in (shape(70, 3, layers=4), shape(2048, 2, layers=4)):
        params, call = drawn(public, sized)
        found.append((params, call, public.reference(params, [call])[0]))
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_bfloat16_throughout_is_within_half_of_the_gate(
    task: Task, public: ModuleType, adapter: ModuleType, draws: Any, number: int
) -> None:
    params, call, wanted = draws[number]
    honest = InTorch(public)
    found = adapter.run(honest, adapter.setup(honest, params), call)
    assert passes(task, found, wanted)
    gate = task.gate.rms_ratio["bfloat16"]
    assert all(gate / 6 < off(found[name], wanted[name]) < 0.6 * gate for name in LEAVES)


LONG_FAULTS = ("a tenth of the context left out", "stale row", "attention skipped", "a window")


@pytest.mark.parametrize(
    ("number", "fault"), [*((0, name) for name in FAULTS), *((1, name) for name in LONG_FAULTS)]
)
def test_what_is_wrong_does_not_pass(
    task: Task, public: ModuleType, adapter: ModuleType, draws: Any, number: int, fault: str
) -> None:
    params, call, wanted = draws[number]
    mutant = InTorch(public, fault)
    found = adapter.run(mutant, adapter.setup(mutant, params), call)
    assert not passes(task, found, wanted)


def test_a_wrong_prefill_does_not_pass(task: Task, public: ModuleType, adapter: ModuleType) -> None:
    params, call = drawn(public, shape(12, 2, dealt=0))
    (wanted,) = public.reference(params, [call])
    for honest, expected in ((InTorch(public), True), (InTorch(public, "stale row"), False)):
        found = adapter.run(honest, adapter.setup(honest, params), call)
        assert passes(task, found, wanted) is expected


# --- the adapter ---------------------------------------------------------------------------------


class Otherwise:
    """The public functions over caches of another layout: ``packed`` of lists, and back."""

    def __init__(
        self, public: ModuleType, packed: Callable[..., Any], unpacked: Callable[..., Any]
    ):
        self._public, self._packed, self._unpacked = public, packed, unpacked
        self.Model = public.Model
        self.import_caches: Any = None
        self.cache_rows: Any = None

    def prefill(self, model: Any, ctx_len: int, seed: int) -> Any:
        hidden, k, v = self._public.prefill(model, ctx_len, seed)
        return hidden, *self._packed(k, v)

    def decode_steps(self, model: Any, hidden: Any, k: Any, v: Any, *rest: Any) -> Any:
        lists = self._unpacked(k, v)
        before = [[cache.clone() for cache in held] for held in lists]
        hidden = self._public.decode_steps(model, hidden, *lists, *rest)
        for held, old in zip(lists, before, strict=True):  # views: written in place
            assert not any(map(torch.equal, held, old))
        return hidden


def as_lists(k: Any, v: Any) -> Any:
    return [*k], [*v]


LAYOUTS: dict[str, tuple[Layout, Layout]] = {
    "lists": (lambda k, v: (k, v), as_lists),
    "tuples": (lambda k, v: (tuple(k), tuple(v)), as_lists),
    "one tensor": (lambda k, v: (torch.stack(k), torch.stack(v)), as_lists),
    "batch of one": (
        lambda k, v: ([c[None] for c in k], [c[None] for c in v]),
        lambda k, v: ([c[0] for c in k], [c[0] for c in v]),
    ),
    "positions first": (
        lambda k, v: ([c.transpose(0, 1).contiguous() for c in k], v),
        lambda k, v: ([c.transpose(0, 1) for c in k], v),
    ),
    "keys turned": (
        lambda k, v: ([c.transpose(1, 2).contiguous() for c in k], v),
        lambda k, v: ([c.transpose(1, 2) for c in k], v),
    ),
    "heads merged": (
        lambda k, v: ([c.transpose(0, 1).reshape(-1, 1024) for c in k], v),
        lambda k, v: ([c.view(-1, 8, 128).transpose(0, 1) for c in k], v),
    ),
    "rows to spare": (
        lambda k, v: ([torch.nn.functional.pad(c, (0, 0, 0, 40)) for c in k], v),
        lambda k, v: ([c[:, :-40] for c in k], v),
    ),
    "layers inside": (
        lambda k, v: (torch.stack(k, dim=1), torch.stack(v, dim=1)),
        lambda k, v: (k.unbind(1), v.unbind(1)),
    ),
    "k and v in one": (
        lambda k, v: (torch.stack([torch.stack(k), torch.stack(v)]), None),
        lambda both, _: (both[0].unbind(0), both[1].unbind(0)),
    ),
    "pairs": (
        lambda k, v: ([[a, b] for a, b in zip(k, v, strict=True)], None),
        lambda both, _: ([a for a, _ in both], [b for _, b in both]),
    ),
    "float32": (
        lambda k, v: ([c.float() for c in k], [c.float() for c in v]),
        lambda k, v: (k, v),
    ),
}


@pytest.fixture(scope="module")
def three_layers(public: ModuleType) -> tuple[Any, Any, Any]:
    params, call = drawn(public, shape(20, 2, layers=3))
    return params, call, public.reference(params, [call])[0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_caches_of_other_layouts_are_filled_and_read(
    public: ModuleType, adapter: ModuleType, three_layers: Any, name: str
) -> None:
    params, call, wanted = three_layers
    other = Otherwise(public, *LAYOUTS[name])
    found = adapter.run(other, adapter.setup(other, params), call)
    for leaf in LEAVES:  # the same figures; turned operands are summed in another order
        torch.testing.assert_close(found[leaf], wanted[leaf], rtol=0.02, atol=0.01)


def test_a_layout_that_nobody_knows_is_filled_and_read_by_its_owner(
    public: ModuleType, adapter: ModuleType, three_layers: Any
) -> None:
    params, call, wanted = three_layers
    hidden = Otherwise(
        public,
        lambda k, v: (SimpleNamespace(k=k, v=v), None),
        lambda held, _: (held.k, held.v),
    )
    with pytest.raises(NotImplementedError, match="import_caches"):
        adapter.setup(hidden, params)
    room = params["init"][1]

    def import_caches(model: Any, k: Any, v: Any, length: int) -> Any:
        assert all(cache.shape == (8, length, 128) for cache in (*k, *v))
        pad = [[torch.nn.functional.pad(c, (0, 0, 0, room - length)) for c in x] for x in (k, v)]
        return SimpleNamespace(k=pad[0], v=pad[1]), None

    hidden.import_caches = import_caches
    hidden.cache_rows = lambda model, k, v, start, n: [
        torch.stack([c[:, start : start + n] for c in held]) for held in (k.k, k.v)
    ]
    found = adapter.run(hidden, adapter.setup(hidden, params), call)
    assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in LEAVES)


def test_caches_may_come_back_with_the_hidden_in_any_form(
    public: ModuleType, adapter: ModuleType, three_layers: Any
) -> None:
    params, call, wanted = three_layers

    def prefill(*given: Any) -> Any:
        hidden, k, v = public.prefill(*given)
        return hidden.view(1, 1, -1), k, v

    def decode_steps(model: Any, hidden: Any, k: Any, v: Any, *rest: Any) -> Any:
        assert hidden.shape == (1, 1, 1024)
        k, v = ([cache.clone() for cache in held] for held in (k, v))
        return public.decode_steps(model, hidden.view(-1), k, v, *rest).view(1, 1, -1), k, v

    module = SimpleNamespace(Model=public.Model, prefill=prefill, decode_steps=decode_steps)
    found = adapter.run(offered(module), adapter.setup(offered(module), params), call)
    assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in LEAVES)


def test_every_call_begins_where_the_first_began(
    public: ModuleType, adapter: ModuleType, three_layers: Any
) -> None:
    params, call, wanted = three_layers
    other = {"hidden": -call["hidden"], "seed": call["seed"] + 1}
    state = adapter.setup(offered(public), params)
    results = [adapter.run(offered(public), state, given) for given in (call, other, call)]
    assert all(torch.equal(results[2][leaf], wanted[leaf]) for leaf in LEAVES)
    assert not torch.equal(results[1]["hidden"], wanted["hidden"])


# --- cases, work, submissions --------------------------------------------------------------------


def test_sealed_cases_replay_and_cover_prefills_and_edges(task: Task) -> None:
    draw = loader.load_cases(task)
    one, two = list(draw(5, "quick")), list(draw(5, "quick"))
    for a, b in zip(one, two, strict=True):
        assert a.name == b.name
        for left, right in zip(a.calls, b.calls, strict=True):
            assert all(left[name].tobytes() == right[name].tobytes() for name in left)
    assert len({case.name for case in one}) == len(one)
    sizes = {(case.params["start"], case.params["steps"]) for case in one}
    assert {(1, 1), (63, 2), (64, 1), (255, 2)} <= sizes
    assert sum(case.params["prefill_seed"] is not None for case in one) == 2


def test_honest_results_pass_the_sealed_cases_and_faults_show_in_the_stress(
    task: Task, public: ModuleType, adapter: ModuleType, reference: TensorReference
) -> None:
    def is_right(entry: InTorch, case: Case) -> bool:
        weights = reference.typed(case.params["weights"], {"*": "bfloat16"})
        state = adapter.setup(entry, {**case.params, "weights": weights})
        return all(
            all(close.passed for close in compare_all(task, case, got, wanted, {}))
            for call, wanted in zip(case.calls, case.expected, strict=True)
            for found in [adapter.run(entry, state, reference.typed(call))]
            for got in [{name: as_array(value) for name, value in found.items()}]
        )

    seen: dict[str, set[str]] = {}
    for case in loader.load_cases(task)(9, "quick"):
        assert is_right(InTorch(public), case), case.name
        for fault in ("caches of eight bits", "heads of another group"):
            if case.group == "stress:scale" and not is_right(InTorch(public, fault), case):
                seen.setdefault(fault, set()).add(case.name.partition(",")[0])
    assert "magnitudes" in seen["caches of eight bits"]
    assert "heads apart" in seen["heads of another group"]


def test_work_is_that_of_weights_and_rows(task: Task) -> None:
    for sized in task.shapes:
        ctx, steps, layers = (sized.dims[name] for name in ("ctx", "steps", "layers"))
        matrices = 2048 * 1024 * 2 + 2 * 1024 * 1024 + 3 * 3072 * 1024
        rows = sum(ctx + step + 1 for step in range(steps))
        found = work(task, sized)
        assert found.bytes == layers * (
            2 * steps * (matrices + 2 * 1024 + 2 * 128) + 2 * 2 * 8 * 128 * rows
        )
        assert found.flops == layers * (2 * steps * matrices + 2 * 2 * 16 * 128 * rows)
        assert found.floor_bytes < found.bytes
        assert found.floor_flops < found.flops


def test_scored_and_checked_sizes_are_those_of_the_deck(task: Task) -> None:
    assert [(s.dims["ctx"], s.dims["steps"]) for s in task.shapes] == [
        (2048, 64),
        (8192, 64),
        (32768, 32),
        (131072, 16),
    ]
    sealed = loader.execute(task, "sealed/cases.py", ("cases",))
    assert sealed.CHECKED == ((128, 8), (256, 8), (512, 4))
    assert sealed.LONG[0] == 8192


def test_naive_agrees_with_the_reference_to_the_last_bits(
    task: Task, public: ModuleType, adapter: ModuleType, draws: Any
) -> None:
    naive = shipped(task, "naive")
    for params, call, wanted in draws:
        found = adapter.run(naive, adapter.setup(naive, params), call)
        assert all(off(found[name], wanted[name]) < 2e-3 for name in LEAVES)


def test_eight_bits_are_not_enough(task: Task, adapter: ModuleType, draws: Any) -> None:
    cheat = shipped(task, "cheats/narrow_caches")
    for params, call, wanted in draws:
        assert not passes(task, adapter.run(cheat, adapter.setup(cheat, params), call), wanted)


HOST = """
#include "persistent_on_cpu.h"
#include "decode.cu"
extern "C" void decode(const unsigned long long *at, int layers, int start, int steps, int room,
                       int lazy) {
    std::vector<float> scratch(SCRATCH, NAN);
    std::vector<unsigned> counters(COUNTERS, 0);
    Work work = work_of(at, layers, start, steps, room, scratch.data(), counters.data());
    on_cpu::lazy = lazy;
    on_cpu::launch(BLOCKS, THREADS, sizeof(Shared), [&] { decode_steps(work); });
}
"""


@pytest.mark.parametrize("lazy", [0, 1])
def test_the_kernel_of_the_oracle_is_right_thread_by_thread(
    task: Task, public: ModuleType, tmp_path: Path, lazy: int
) -> None:
    oracle = task.folder / "submissions" / "oracle"
    (tmp_path / "host.cpp").write_text(HOST)
    command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-DSPLITS=2", "-DTHREADS=128"]
    command += [f"-I{oracle}", f"-I{SUPPORT}", "host.cpp", "-o", "host.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "host.so"))
    params, call = drawn(public, shape(3, 1, layers=1))
    (wanted,) = public.reference(params, [call])
    weights = params["weights"]
    _, k, v = public._state(params, weights)
    rng = torch.Generator().manual_seed(int(call["seed"]) + 2)
    out, noise = torch.zeros(1024).bfloat16(), torch.randn(1, 1024, generator=rng)
    rates = 1e4 ** (-torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    order = ("input_ln", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj", "post_ln")
    order = (*order, "gate_proj", "up_proj", "down_proj")
    held = [weights[f"blocks.0.{name}"] for name in order]
    held += [k[0], v[0], call["hidden"], noise, rates, out]
    at = (ctypes.c_ulonglong * len(held))(*(tensor.data_ptr() for tensor in held))
    library.decode(at, 1, 3, 1, params["init"][1], lazy)
    found = {"hidden": out, "k_rows": k[0][None, :, 3:4], "v_rows": v[0][None, :, 3:4]}
    assert all(off(found[name], wanted[name]) < 2e-3 for name in LEAVES)


def test_the_oracle_draws_its_noise_in_pieces_of_one_stream(task: Task) -> None:
    folder = task.folder / "submissions" / "oracle"
    spec = importlib.util.spec_from_file_location("_oracle", folder / "solution.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for n in (1, 4, 5, 16, 64, 200):
        assert sum(module.chunks(n)) == n
    one, other = (torch.Generator().manual_seed(8) for _ in range(2))
    pieces = [torch.empty(n, 1024).normal_(generator=one) for n in module.chunks(20)]
    assert torch.equal(torch.cat(pieces), torch.randn(20, 1024, generator=other))
    text = (folder / "decode.cu").read_text()
    assert authored_of([], [text]).kinds == {"cuda_raw"}


@pytest.fixture(scope="module")
def small(task: Task) -> Task:
    """The task with one layer in its small shapes: a case then costs a quarter."""
    smoke = [Shape(name=s.name, dims={**s.dims, "layers": 1}, dtype=s.dtype) for s in task.smoke]
    return task.model_copy(update={"smoke": tuple(smoke)})


def graded(task: Task, kind: str, **how: Any) -> Any:
    folder = task.folder / "submissions" / kind
    request = GradeRequest(task, folder, tier="quick", correctness_only=True, seed="s", **how)
    return RefereeGrader().grade(request)


def test_naive_passes_the_referee(small: Task) -> None:
    grade = graded(small, "naive")
    assert grade.result is GradeResult.PASS, grade.message
    assert grade.language == "cuda_raw"
    assert [check.check for check in grade.checks if check.passed is False] == []
    groups = {row.group for row in grade.correctness}
    assert groups == {"nominal", "stress:scale", "property"}


def test_wrong_is_wrong_by_its_values(small: Task) -> None:
    grade = graded(small, "wrong", only="nominal")
    assert grade.result is GradeResult.WRONG
    assert "rms error" in grade.message or "off by" in grade.message
