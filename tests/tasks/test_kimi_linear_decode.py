"""kimi-linear-decode: reference, adapter, cases, baseline, shipped submissions, what must not pass.

The reference is held against a second formulation in float64: loops over heads and experts, keys
and values of all past tokens made from the latent rows, weights unpacked nibble by nibble. The
oracle's kernel runs thread by thread (``tests/support/persistent_on_cpu.h``) on a small grid.
"""

import ctypes
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graders.auditor.matrix import matrix
from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.kernel_names import authored_of
from graders.pipeline import RefereeGrader
from graders.roofline import work
from tasks import loader
from tasks.case import Case
from tasks.spec import Task
from tasks.tensors import TensorReference, as_array
from tasks.validate import problems
from transcripts.words import GradeResult, Strength

torch: Any = pytest.importorskip("torch", reason="the task's interface is torch's")

NAME, SUPPORT = "kimi-linear-decode", Path(__file__).parent.parent / "support"
Draw = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # params, the call, what is wanted


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


def drawn(public: ModuleType, sized: dict[str, Any], seed: int = 3) -> Draw:
    made = public.make_inputs(sized, seed)
    params = {**made["params"], "weights": public.make_weights(sized, seed)}
    (call,) = made["calls"]
    with torch.no_grad():
        (wanted,) = public.reference(params, [call])
    return params, call, wanted


@pytest.fixture(scope="module")
def draws(task: Task, public: ModuleType) -> list[Draw]:
    shapes = [{**shape.dims, "dtype": shape.dtype} for shape in task.smoke]
    return [drawn(public, shape, seed) for shape in shapes for seed in range(3)]


def shipped(task: Task, kind: str) -> Any:
    folder = task.folder / "submissions" / kind
    name = "_" + kind.replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, folder / "solution.py")
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
    return module


def off(one: Any, other: Any) -> float:
    """rms of the difference over that of the second."""
    one, other = one.double(), other.double()
    return float(((one - other).square().mean() / other.square().mean()).sqrt())


def passes(
    task: Task, got: Mapping[str, Any], wanted: Mapping[str, Any], case: Case | None = None
) -> bool:
    given, right = (
        {name: as_array(v) if hasattr(v, "is_cuda") else v for name, v in each.items()}
        for each in (got, wanted)
    )
    return all(close.passed for close in compare_all(task, case, given, right, {}))


# --- the reference -------------------------------------------------------------------------------


def nibbles(weights: Mapping[str, Any], name: str, expert: int | None = None) -> Any:
    """A matrix (K, N) in float64: each byte of the packed one apart, in Python's integers."""
    q, scales, zeros = (weights[f"{name}.{part}"] for part in ("w_q", "scales", "zeros"))
    if expert is not None:
        q, scales, zeros = q[expert], scales[expert], zeros[expert]
    rows = []
    for r, row in enumerate(q.tolist()):
        for k, levels in ((2 * r, [b % 16 for b in row]), (2 * r + 1, [b // 16 for b in row])):
            level = torch.tensor(levels, dtype=torch.float64)
            rows.append((level - zeros[k // 128].double()) * scales[k // 128].double())
    return torch.stack(rows)


def silu(x: Any) -> Any:
    return x / (1 + torch.exp(-x))


def normed(h: Any, weight: Any) -> Any:
    return h / math.sqrt(float(h @ h) / len(h) + 1e-6) * weight.double()


def by_definition(params: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    dims, weights = params["dims"], params["weights"]
    h, found = call["hidden"][0].double(), {}
    for block in range(4):
        base = f"blocks.{block}."
        x = normed(h, weights[base + "attn_norm"])
        one = kda_by_heads if block < 3 else mla_by_heads
        out, state = one(dims, weights, base + "attn.", x, block, call)
        h = h + out @ nibbles(weights, base + "attn.o_proj")
        h = h + experts_one_by_one(
            dims, weights, base + "moe.", normed(h, weights[base + "moe_norm"])
        )
        found |= {f"{block}.{name}": value for name, value in state.items()}
    return {"hidden": h[None], **found}


def kda_by_heads(
    dims: Any, weights: Any, base: str, x: Any, block: int, call: Any
) -> tuple[Any, dict[str, Any]]:
    d, state, streams, outs = dims["kda_head_dim"], {}, [], []
    for n, name in enumerate("qkv"):
        now = x @ nibbles(weights, f"{base}{name}_proj")
        old = call[f"{block}.c{name}"].double()
        window = torch.stack([old[:, 0], old[:, 1], old[:, 2], now])
        taps = weights[base + "conv_w"][n].double()
        streams.append(silu(sum(taps[:, t] * window[t] for t in range(4))))
        state["c" + name] = window[1:].T
    g = -torch.log1p(torch.exp(x @ nibbles(weights, base + "g_proj")))
    beta = 1 / (1 + torch.exp(-(weights[base + "beta_proj.weight"].double() @ x)))
    S_after = []
    for head in range(dims["kda_heads"]):
        at = slice(head * d, (head + 1) * d)
        q, k, v = (stream[at] for stream in streams)
        S = torch.diag(torch.exp(g[at])) @ call[f"{block}.S"][head].double()
        S = (torch.eye(d) - beta[head] * torch.outer(k, k)) @ S + beta[head] * torch.outer(k, v)
        S_after.append(S)
        outs.append(S.T @ q / math.sqrt(d))
    return torch.cat(outs), {"S": torch.stack(S_after), **state}


def mla_by_heads(
    dims: Any, weights: Any, base: str, x: Any, block: int, _call: Any
) -> tuple[Any, dict[str, Any]]:
    nope, rope, v_head = dims["qk_nope"], dims["qk_rope"], dims["v_head"]
    place = dims["ctx"]
    turn = torch.polar(
        torch.ones(rope // 2, dtype=torch.float64),
        place / 10000.0 ** (torch.arange(0, rope, 2, dtype=torch.float64) / rope),
    )

    def turned(z: Any) -> Any:
        return torch.view_as_real(torch.complex(z[0::2], z[1::2]) * turn).flatten()

    row = x @ nibbles(weights, base + "kv_a")
    new = {
        "c_kv": row[: dims["kv_lora"]].bfloat16()[None],
        "k_rope": turned(row[dims["kv_lora"] :]).bfloat16()[None],
    }
    c_kv, k_rope = (
        torch.cat([weights[f"state.{block}.{name}"], value]).double() for name, value in new.items()
    )
    both = c_kv @ nibbles(weights, base + "kv_b")  # of every token, every key and every value
    q, outs = x @ nibbles(weights, base + "q_proj"), []
    for head in range(dims["mla_heads"]):
        own = q[head * (nope + rope) : (head + 1) * (nope + rope)]
        pair = both[:, head * (nope + v_head) : (head + 1) * (nope + v_head)]
        keys = torch.cat([pair[:, :nope], k_rope], dim=1)
        scores = keys @ torch.cat([own[:nope], turned(own[nope:])]) / math.sqrt(nope + rope)
        outs.append(torch.exp(scores - scores.logsumexp(0)) @ pair[:, nope:])
    return torch.cat(outs), new


def experts_one_by_one(dims: Any, weights: Any, base: str, x: Any) -> Any:
    p = torch.exp(weights[base + "router.weight"].double() @ x)
    order = sorted(range(dims["n_experts"]), key=lambda e: -float(p[e]))[: dims["n_active"]]
    shares = [(2.446 * p[e] / sum(p[o] for o in order), "", e) for e in order]
    total = torch.zeros_like(x)
    for share, prefix, e in [*shares, (1.0, "s_", None)]:
        gate, up = (x @ nibbles(weights, f"{base}{prefix}{name}", e) for name in ("gate", "up"))
        total = total + share * ((silu(gate) * up) @ nibbles(weights, f"{base}{prefix}down", e))
    return total


def test_reference_agrees_with_the_definitions_in_loops(public: ModuleType, draws: Any) -> None:
    for params, call, wanted in (draws[0], draws[4], draws[8]):
        found = by_definition(params, call)
        assert found.keys() == wanted.keys()
        for leaf, value in wanted.items():
            limit = 1e-5 if leaf.endswith(".S") else 3e-3  # others are rounded to bfloat16
            assert off(value, found[leaf]) < limit, leaf


def test_steps_that_follow_go_on_from_the_state_before(public: ModuleType, task: Task) -> None:
    shape = {**task.smoke[0].dims, "dtype": "bfloat16"}
    params, call, first = drawn(public, shape)
    second = {"hidden": public.init_token(public.build_config(shape), 8)}
    found = public.reference({**params, "follows": True}, [call, second])
    assert all(torch.equal(found[0][leaf], first[leaf]) for leaf in first)
    dims = {**params["dims"], "ctx": shape["ctx"] + 1}
    longer = {
        f"state.3.{name}": torch.cat([params["weights"][f"state.3.{name}"], first[f"3.{name}"]])
        for name in ("c_kv", "k_rope")
    }
    onward = {**params, "dims": dims, "weights": {**params["weights"], **longer}}
    (alone,) = public.reference(onward, [{**first, **second}])
    assert all(torch.equal(found[1][leaf], alone[leaf]) for leaf in alone)


def test_draws_give_attention_a_good_part_of_every_block(public: ModuleType, draws: Any) -> None:
    for params, call, _ in draws:
        cfg, weights = public.build_config(params["dims"]), params["weights"]
        h = call["hidden"].float()
        pairs = zip(cfg.pattern, public.nested(call, weights, cfg), strict=True)
        for n, (kind, held) in enumerate(pairs):
            one = public.kda if kind == "kda" else public.mla
            x = public.rms_norm(h, weights[f"blocks.{n}.attn_norm"])
            out, _ = one(weights, f"blocks.{n}.attn.", cfg, x, held)
            assert out.norm() > 0.3 * h.norm()
            h = h + out
            x = public.rms_norm(h, weights[f"blocks.{n}.moe_norm"])
            h = h + public.experts(weights, f"blocks.{n}.moe.", cfg, x)


# --- what must not pass, and what must -----------------------------------------------------------


def changed(public: ModuleType, task: Task, **functions: Any) -> ModuleType:
    """The reference with other functions; each gets the one that it replaces first."""
    module = loader.execute(task, "public/reference.py", ("reference",))
    for name, function in functions.items():
        before = getattr(module, name)
        setattr(module, name, lambda *given, f=function, b=before: f(b, *given))
    return module


def without_attention(attend: Any, *given: Any) -> Any:
    out, state = attend(*given)
    return torch.zeros_like(out), state


def without_update(attend: Any, weights: Any, base: str, cfg: Any, x: Any, state: Any) -> Any:
    out, after = attend(weights, base, cfg, x, state)
    return out, {**after, "S": state["S"]}


def with_window_as_it_was(
    attend: Any, weights: Any, base: str, cfg: Any, x: Any, state: Any
) -> Any:
    out, after = attend(weights, base, cfg, x, state)
    return out, {**after, "ck": state["ck"]}


def without_decay(attend: Any, weights: Any, base: str, cfg: Any, x: Any, state: Any) -> Any:
    name = f"{base}g_proj.scales"
    return attend({**weights, name: weights[name] * 0}, base, cfg, x, state)


def with_a_stale_row(attend: Any, weights: Any, base: str, cfg: Any, x: Any, state: Any) -> Any:
    out, after = attend(weights, base, cfg, x, state)
    rows = {name: torch.cat([value[:-1], value[-2:-1]]) for name, value in after.items()}
    return out, rows


def with_less_context(attend: Any, weights: Any, base: str, cfg: Any, x: Any, state: Any) -> Any:
    skipped = len(state["c_kv"]) // 10 + 1
    out, _ = attend(weights, base, cfg, x, {n: v[skipped:] for n, v in state.items()})
    return out, attend(weights, base, cfg, x, state)[1]


def unrotated(_turn: Any, x: Any, position: int, theta: float) -> Any:
    return x


def without_the_shared_expert(mix: Any, weights: Any, base: str, cfg: Any, x: Any) -> Any:
    return mix(
        {**weights, base + "s_down.scales": weights[base + "s_down.scales"] * 0}, base, cfg, x
    )


def with_other_experts(mix: Any, weights: Any, base: str, cfg: Any, x: Any) -> Any:
    router = weights[base + "router.weight"].roll(1, 0)
    return mix({**weights, base + "router.weight": router}, base, cfg, x)


def without_scaling(mix: Any, weights: Any, base: str, cfg: Any, x: Any) -> Any:
    return mix(weights, base, replace(cfg, routed_scaling=1.0), x)


MUTANTS: dict[str, dict[str, Callable[..., Any]]] = {
    "KDA is left out": {"kda": without_attention},
    "MLA is left out": {"mla": without_attention},
    "S stays as it was": {"kda": without_update},
    "S does not decay as it should": {"kda": without_decay},
    "a window is not shifted": {"kda": with_window_as_it_was},
    "a stale row is appended": {"mla": with_a_stale_row},
    "a tenth of the context is left out": {"mla": with_less_context},
    "keys are not rotated": {"rotated": unrotated},
    "the shared expert is left out": {"experts": without_the_shared_expert},
    "other experts are chosen": {"experts": with_other_experts},
    "routed experts are not scaled": {"experts": without_scaling},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail_at_every_size(task: Task, public: ModuleType, draws: Any, name: str) -> None:
    mutant = changed(public, task, **MUTANTS[name])
    for params, call, wanted in draws:
        if params["dims"]["ctx"] == 1 and name == "a tenth of the context is left out":
            continue
        (found,) = mutant.reference(params, [call])
        assert not passes(task, found, wanted), params["dims"]["ctx"]


def rounded(value: Any) -> Any:
    return value.bfloat16().float() if torch.is_tensor(value) else value


def in_bfloat16(function: Any, *given: Any) -> Any:
    """A function of which every float input and the first output are rounded."""
    out = function(
        *(rounded(x) if torch.is_tensor(x) and x.is_floating_point() else x for x in given)
    )
    return (rounded(out[0]), *out[1:]) if isinstance(out, tuple) else rounded(out)


HONEST = ("unpacked", "rms_norm", "kda", "mla", "experts", "rotated")


def test_honest_bfloat16_passes_everywhere(task: Task, public: ModuleType, draws: Any) -> None:
    honest = changed(public, task, **dict.fromkeys(HONEST, in_bfloat16))
    errors = []
    for params, call, wanted in draws:
        (found,) = honest.reference(params, [call])
        assert passes(task, found, wanted)
        errors.append(off(found["hidden"], wanted["hidden"]))
    assert max(errors) > 1e-3  # the rounding is there


def test_honest_results_pass_the_sealed_cases(
    task: Task, public: ModuleType, reference: TensorReference
) -> None:
    honest = changed(public, task, unpacked=in_bfloat16, rms_norm=in_bfloat16)
    names = []
    for case in loader.load_cases(task)(9, "quick"):
        weights = reference.typed(case.params["weights"], task.interface.raw_weights)
        calls = [reference.typed(call) for call in case.calls]
        found = honest.reference({**case.params, "weights": weights}, calls)
        for got, wanted in zip(found, case.expected, strict=True):
            assert passes(task, got, wanted, case), case.name
        names.append(case.name)
    assert len({*names}) == len(names)
    assert sum("steps" in name for name in names) == 2


# --- adapter, baseline, submissions ---------------------------------------------------------------


def test_a_row_may_be_written_in_place_and_calls_begin_anew(
    task: Task, public: ModuleType, adapter: ModuleType, draws: Any
) -> None:
    params, call, wanted = draws[0]
    held = adapter.setup(shipped(task, "naive"), params)
    cache = held.blocks[3][2]["c_kv"]
    before = cache.clone()
    for _ in range(2):
        found = adapter.run(None, held, call)
        assert passes(task, found, wanted)
        end = found["3.c_kv"].data_ptr()
        assert end == cache.data_ptr() + cache.numel() * cache.element_size()
        assert torch.equal(cache, before)


def test_a_cache_that_did_not_grow_by_a_row_is_refused(
    public: ModuleType, adapter: ModuleType, draws: Any
) -> None:
    params, call, _ = draws[0]

    class Model(public.Model):  # type: ignore[name-defined, misc]
        def step(self, hidden: Any, state: Any) -> Any:
            return hidden, state

    held = adapter.setup(type("Entries", (), {"Model": Model}), params)
    with pytest.raises(ValueError, match="rows after a step"):
        adapter.run(None, held, call)


def test_the_module_of_the_reference_is_a_submission(
    task: Task, public: ModuleType, adapter: ModuleType, draws: Any
) -> None:
    for params, call, wanted in draws:
        found = adapter.run(None, adapter.setup(public, params), call)
        assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in wanted)


def test_the_baseline_is_right(task: Task, adapter: ModuleType, draws: Any) -> None:
    baseline = loader.execute(task, "public/baseline.py", ("Model",))
    for params, call, wanted in draws:
        assert passes(task, adapter.run(None, adapter.setup(baseline, params), call), wanted)


def test_the_baseline_keeps_its_weights_four_bits_wide(task: Task, public: ModuleType) -> None:
    baseline = loader.execute(task, "public/baseline.py", ("Model",))
    shape = {**task.smoke[0].dims, "dtype": "bfloat16"}
    weights = public.make_weights(shape, 1)
    weights = {name: value for name, value in weights.items() if not name.startswith("state.")}
    model = baseline.Model(public.build_config(shape))
    model.load_state_dict(weights, strict=True)
    kept = [
        part
        for layer in model.layers
        for value in layer.values()
        if isinstance(value, list)
        for part in value
    ]
    packed = sum(part.nbytes for part in kept if part.dtype is torch.uint8)
    assert packed == sum(value.nbytes for name, value in weights.items() if name.endswith("w_q"))


def test_naive_agrees_with_the_reference_to_the_last_bits(
    task: Task, adapter: ModuleType, draws: Any
) -> None:
    naive = shipped(task, "naive")
    for params, call, wanted in draws:
        found = adapter.run(None, adapter.setup(naive, params), call)
        assert all(off(found[name], wanted[name]) < 2e-3 for name in wanted)


def test_another_order_fails_every_draw_and_eight_bits_fail_most(
    task: Task, adapter: ModuleType, draws: Any
) -> None:
    for kind, least in (("wrong", len(draws)), ("cheats/narrow_state", len(draws) // 2)):
        module = shipped(task, kind)
        found = [
            passes(task, adapter.run(None, adapter.setup(module, params), call), wanted)
            for params, call, wanted in draws
        ]
        assert found.count(False) >= least, kind


def test_attention_that_long_contexts_lack_is_seen(
    task: Task, public: ModuleType, adapter: ModuleType
) -> None:
    params, call, wanted = drawn(public, {**task.smoke[0].dims, "ctx": 1200, "dtype": "bfloat16"})
    cheat = shipped(task, "cheats/attention_left_out")
    found = adapter.run(None, adapter.setup(cheat, params), call)
    assert not passes(task, found, wanted)


def test_a_result_by_pointer_does_not_follow_the_values(
    task: Task, adapter: ModuleType, draws: Any
) -> None:
    params, call, wanted = draws[0]
    held = adapter.setup(shipped(task, "cheats/pointer_cache"), params)
    mine = {name: value.clone() for name, value in call.items()}
    assert passes(task, adapter.run(None, held, mine), wanted)
    mine["hidden"].neg_()
    again = adapter.run(None, held, mine)
    assert torch.equal(again["hidden"].float().sign(), wanted["hidden"].float().sign())


def test_the_source_of_each_cheat_shows_its_mechanism_and_honest_ones_show_none(
    task: Task,
) -> None:
    shown = {cheat.mechanism for cheat in loader.cheats(task) if "source" in cheat.evidence}
    for line in matrix(task):
        found = {f.mechanism for f in line.audit.findings if f.strength is not Strength.WEAK}
        if line.case.mechanism is None:
            assert not found, line.case.kind
        elif line.case.mechanism in shown:
            assert line.case.mechanism in found, line.case.kind


def test_work_is_that_of_every_weight_that_a_token_meets(task: Task) -> None:
    kda = 5 * 2304 * 4096
    mla = 2304 * 6144 + 2304 * 576 + 512 * 8192 + 4096 * 2304
    experts = 9 * 3 * 2304 * 1024
    for shape in task.shapes:
        ctx = shape.dims["ctx"]
        packed = 3 * kda + mla + 4 * experts
        state = 3 * 2 * 4 * 32 * 128 * 128 + 2 * ctx * 576
        found = work(task, shape)
        assert found.bytes == packed * (4 + 32 / 128) / 8 + 2 * 2304 * (4 * 64 + 3 * 32) + state
        attended = ctx * 32 * (512 + 64 + 512)
        assert found.flops == 2 * (packed + 9 * 32 * 128 * 128 + attended)
        assert found.floor_bytes < found.bytes


def test_timed_contexts_and_sizes_are_those_of_the_deck(task: Task, public: ModuleType) -> None:
    assert [shape.dims["ctx"] for shape in task.shapes] == [2048, 8192, 16384]
    assert task.most_launches == 1
    for shape in task.shapes:
        assert public.build_config(shape.dims) == public.Config()
    sealed = loader.execute(task, "sealed/cases.py", ("cases",))
    assert [size["ctx"] for size in sealed.CHECKED] == [2048, 8192]
    assert sealed.SEEDS == 3


def test_the_state_dict_has_the_names_of_the_deck(public: ModuleType) -> None:
    names = {*public.layout(public.Config())}
    assert "blocks.0.attn.beta_proj.weight" in names
    assert "blocks.2.attn.conv_w" in names
    assert "blocks.3.attn.kv_b.w_q" in names
    assert "blocks.3.moe.s_down.zeros" in names
    assert public.layout(public.Config())["blocks.1.moe.gate.w_q"][0] == (64, 1152, 1024)


# --- the oracle ----------------------------------------------------------------------------------

HOST = """
#include "persistent_on_cpu.h"
#include "decode.cu"
static Work w;
extern "C" long prepare(const long long *sizes, const unsigned long long *layers, float scaling,
                        const double *rates, int blocks) {
    fill(w, sizes, layers, scaling);
    w.rates = rates;
    return *refused(w.sizes, blocks) ? -1 : scratch_of(w.sizes, blocks).floats;
}
extern "C" void decode(float *scratch, const unsigned long long *at, int ctx, int blocks,
                       int lazy) {
    place_scratch(w, scratch, blocks);
    bring(w, at, ctx);
    on_cpu::lazy = lazy;
    on_cpu::launch(blocks, THREADS, sizeof(Shared), [&] { decode_step(w); });
}
// How often each piece of a phase is some warp's. Returns their number, -1 for a share too large.
extern "C" int covered(int blocks, int kind, int is_mla, int *times) {
    int all = 0;
    gridDim.x = blocks;
    for (blockIdx.x = 0; (int)blockIdx.x < blocks; blockIdx.x++) {
        Job job;
        job.set(kind, w.sizes, is_mla);
        if (job.last - job.first > MOST_PIECES) return -1;
        for (int warp = 0; warp < WARPS; warp++) {
            const int begin = job.begin(warp), end = job.begin(warp + 1);
            if (begin < end && job.tile(end - 1) > job.tile(begin) + 1) return -1;
            for (int at = begin; at < end; at++) times[at]++;
        }
        if (kind == OUT && job.first < job.last && job.tile(job.first) != job.tile(job.last - 1))
            return -1;
        all = job.last > all ? job.last : all;
    }
    return all;
}
"""


@pytest.fixture(scope="module")
def built(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, oracle = tmp_path_factory.mktemp("built"), task.folder / "submissions" / "oracle"
    (folder / "host.cpp").write_text(HOST)
    command = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", f"-I{oracle}", f"-I{SUPPORT}"]
    subprocess.run([*command, "host.cpp", "-o", "host.so"], cwd=folder, check=True)
    return folder / "host.so"


class OnCpu:
    """What the oracle's extension offers, run thread by thread."""

    def __init__(self, built: Path, blocks: int, lazy: int) -> None:
        self.library = ctypes.CDLL(str(built))
        self.library.prepare.restype = ctypes.c_long
        self.blocks, self.lazy = blocks, lazy

    @staticmethod
    def words(values: Any) -> Any:
        return (ctypes.c_ulonglong * len(values))(*values)

    def scratch(self, sizes: Any) -> int:
        none = self.words([0] * 1000)
        floats = self.library.prepare(self.words(sizes), none, ctypes.c_float(1), None, self.blocks)
        assert floats > 0
        return int(floats)

    def prepare(
        self, number: int, sizes: Any, layers: Any, scaling: float, scratch: int, rates: int
    ) -> int:
        self.held, self.memory = (self.words(sizes), self.words(layers)), ctypes.c_void_p(scratch)
        how = ctypes.c_float(scaling), ctypes.c_void_p(rates), self.blocks
        self.library.prepare(*self.held, *how)
        return 0

    def step(self, number: int, at: Any, ctx: int) -> None:
        self.library.decode(self.memory, self.words(at), ctx, self.blocks, self.lazy)


@pytest.mark.parametrize(("smoke", "blocks", "lazy"), [(0, 4, 0), (0, 3, 1), (1, 5, 1), (2, 2, 1)])
def test_the_kernel_of_the_oracle_is_right_thread_by_thread(
    task: Task,
    public: ModuleType,
    adapter: ModuleType,
    built: Path,
    smoke: int,
    blocks: int,
    lazy: int,
) -> None:
    oracle = shipped(task, "oracle")
    extension = OnCpu(built, blocks, lazy)
    oracle.built = lambda: extension
    shape = {**task.smoke[smoke].dims, "dtype": "bfloat16"}
    params, call, _ = drawn(public, shape)
    cfg = public.build_config(shape)
    more = [{"hidden": public.init_token(cfg, seed)} for seed in (11, 12)]
    params["follows"] = True
    wanted = public.reference(params, [call, *more])
    held = adapter.setup(oracle, params)
    for given, right in zip([call, *more], wanted, strict=True):
        found = adapter.run(None, held, given)  # the later ones on what the first left in scratch
        assert all(off(found[name], right[name]) < 0.01 for name in right)


def test_the_oracle_copies_caches_without_room_in_its_launch(
    task: Task, public: ModuleType, draws: Any, built: Path
) -> None:
    oracle = shipped(task, "oracle")
    extension = OnCpu(built, 4, 1)
    oracle.built = lambda: extension
    params, call, wanted = draws[0]
    cfg, weights = public.build_config(params["dims"]), params["weights"]
    model = oracle.Model(cfg)
    model.load_state_dict({n: w for n, w in weights.items() if not n.startswith("state.")})
    _, after = model.step(call["hidden"], public.nested(call, weights, cfg))
    for name in ("c_kv", "k_rope"):
        assert torch.equal(after[3][name][:-1], weights[f"state.3.{name}"])
        assert off(after[3][name][-1:], wanted[f"3.{name}"]) < 0.01
    held = after[3]["c_kv"].data_ptr()
    _, again = model.step(call["hidden"], after)  # now there is room
    assert again[3]["c_kv"].data_ptr() == held


@pytest.mark.parametrize("blocks", [114, 132, 148])
def test_the_oracle_deals_every_piece_of_the_timed_sizes_once(
    task: Task, built: Path, blocks: int
) -> None:
    extension = OnCpu(built, blocks, 0)
    assert extension.scratch([2304, 32, 128, 32, 512, 128, 64, 128, 64, 8, 1024, 0, 0, 0, 1]) > 0
    kda, mla = (4 * 32, 64), (48 + 5, 64)  # tiles to project to, chunks of o
    for is_mla, (tiles, chunks) in enumerate((kda, mla)):
        wanted = [tiles * 36, 18 * chunks, 9 * 2 * 8 * 36, 18 * 9 * 16]
        for kind, pieces in enumerate(wanted):
            times = (ctypes.c_int * 8192)()
            assert extension.library.covered(blocks, kind, is_mla, times) == pieces
            assert times[:pieces] == [1] * pieces


def test_results_of_the_oracle_are_never_its_inputs(task: Task, public: ModuleType) -> None:
    oracle = shipped(task, "oracle")
    model = oracle.Model(public.build_config(task.smoke[0].dims))
    device = torch.zeros(1)
    first = model.free_results(device, [])
    second = model.free_results(device, [first.state[1]["ck"].data_ptr()])
    assert second is not first
    assert first.all.isdisjoint(second.all)
    assert model.free_results(device, [second.hidden.data_ptr()]) is first


def test_the_oracle_is_cuda_by_its_source(task: Task) -> None:
    folder = task.folder / "submissions" / "oracle"
    text = (folder / "decode.cu").read_text()
    assert authored_of([], [text]).kinds == {"cuda_raw"}


# --- grades ---------------------------------------------------------------------------------------


def graded(task: Task, kind: str, **how: Any) -> Any:
    folder = task.folder / "submissions" / kind
    request = GradeRequest(task, folder, tier="quick", correctness_only=True, seed="s", **how)
    return RefereeGrader().grade(request)


def test_naive_passes_the_referee(task: Task) -> None:
    grade = graded(task, "naive")
    assert grade.result is GradeResult.PASS, grade.message
    assert grade.language == "cuda_raw"
    assert [check.check for check in grade.checks if check.passed is False] == []


def test_wrong_is_wrong_by_its_values(task: Task) -> None:
    grade = graded(task, "wrong", only="nominal")
    assert grade.result is GradeResult.WRONG
    assert "rms error" in grade.message or "off by" in grade.message


def test_the_task_folder_has_no_problems() -> None:
    assert problems(NAME) == []
