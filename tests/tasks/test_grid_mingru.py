"""grid-mingru: the reference, its policies, the cases, and the shipped submissions.

The reference is held against a second formulation: one environment after the other in plain Python
numbers, with integers of any size for the generators, and ``math`` for the policy. The shipped CUDA
kernels cannot run on a CPU; ``naive`` and ``wrong`` compile the functions that they share with
their kernels as C there, and the products of ``oracle`` are rounded here as tensor cores do.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from candidates import entries, shipped
from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.pipeline import RefereeGrader
from graders.roofline import work
from tasks import loader
from tasks.case import Case
from tasks.spec import Task
from transcripts.words import GradeResult

torch = pytest.importorskip("torch")
NAME = "grid-mingru"
MASK, LCG = (1 << 63) - 1, 6364136223846793005


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products gain nothing from threads, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def task() -> Task:
    return loader.load_task(NAME)


@cache
def reference() -> Any:
    return loader.load_reference(task())


@cache
def sealed() -> list[Case]:
    return list(loader.load_cases(task())(11, "quick"))


def weights_of(seed: int, kind: Any = torch.float64) -> SimpleNamespace:
    made = reference().module.make_weights({}, seed)
    return SimpleNamespace(**{name: value.to(kind) for name, value in made.items()})


# --- a second formulation -------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


class Player:
    """The policy in one environment."""

    def __init__(self, weights: SimpleNamespace) -> None:
        self.w = {name: np.asarray(value) for name, value in vars(weights).items()}
        self.states = [[0.0] * 256 for _ in range(3)]

    def logits(self, obs: list[float]) -> list[float]:
        w = self.w
        h = [float(row @ obs) + float(b) for row, b in zip(w["w_enc"], w["b_enc"], strict=True)]
        for layer in range(3):
            z = [float(value) for value in w["w_gru"][layer] @ np.array(h)]
            for unit in range(256):
                s, gate, through = self.states[layer][unit], z[256 + unit], sigmoid(z[512 + unit])
                out = (1 - sigmoid(gate)) * s + sigmoid(gate) * math.tanh(z[unit])
                self.states[layer][unit] = out
                h[unit] += through * (out - h[unit])
        return [float(row @ np.array(h) + b) for row, b in zip(w["w_a"], w["b_a"], strict=True)]


def played(
    count: int, horizon: int, seed: int, weights: SimpleNamespace
) -> tuple[list[int], list[list[int]], list[list[float]]]:
    """All environments, each a few Python numbers."""
    drawn = torch.Generator().manual_seed(seed)
    agents = torch.randint(0, 11, (count, 2), generator=drawn).tolist()
    foods = torch.randint(0, 11, (count, 2), generator=drawn).tolist()
    numbers = [i + 10007 * seed for i in range(count)]
    players, rewards = [Player(weights) for _ in range(count)], [0] * count
    logits: list[list[float]] = []
    for _ in range(horizon):
        logits, hits = [], []
        for (x, y), (fx, fy), player in zip(agents, foods, players, strict=True):
            logits.append(player.logits([(fx - x) / 11, (fy - y) / 11, x / 10, y / 10]))
        for agent, food, own in zip(agents, foods, logits, strict=True):
            action = own.index(max(own))
            axis, by = (1, 0)[action // 2], (-1, 1)[action % 2]
            agent[axis] = min(max(agent[axis] + by, 0), 10)
            hits.append(agent == food)
        for i in range(count if any(hits) else 0):
            first = (numbers[i] * LCG + 1) & MASK
            numbers[i] = (first * LCG + 1) & MASK
            if hits[i]:
                rewards[i] += 1
                foods[i] = [first % 11, numbers[i] % 11]
    return rewards, agents, logits


@pytest.mark.parametrize(("count", "horizon", "seed"), [(3, 24, 5), (1, 9, 2**31 - 1)])
def test_reference_agrees_with_a_simulation_in_python_numbers(
    count: int, horizon: int, seed: int
) -> None:
    weights = weights_of(seed % 97)
    rewards, positions, logits = played(count, horizon, seed, weights)
    got = reference().module.rollout(count, horizon, seed, weights)
    assert got[0].tolist() == rewards
    assert got[1].tolist() == positions
    np.testing.assert_allclose(got[2], logits, rtol=0, atol=1e-10)
    assert sum(rewards) > 0 or horizon < 20


def test_generators_of_all_advance_twice_when_any_is_paid_and_never_else() -> None:
    module = reference().module
    agent, food = torch.tensor([[4, 4], [0, 0]]), torch.tensor([[5, 4], [9, 9]])
    numbers = torch.tensor([MASK - 1, 123456789])
    _, fresh, after, reward = module.env_step(agent, food, numbers, torch.tensor([3, 1]))
    firsts = [(int(n) * LCG + 1) & MASK for n in numbers]
    seconds = [(n * LCG + 1) & MASK for n in firsts]
    assert after.tolist() == seconds
    assert fresh.tolist() == [[firsts[0] % 11, seconds[0] % 11], [9, 9]]
    assert reward.tolist() == [1, 0]
    _, _, still, _ = module.env_step(agent, food, numbers, torch.tensor([2, 1]))
    assert still.tolist() == numbers.tolist()


def test_an_agent_stays_at_each_border() -> None:
    agent = torch.tensor([[3, 0], [3, 10], [0, 3], [10, 3]])
    far = torch.full((4, 2), 6)
    moved, *_ = reference().module.env_step(agent, far, torch.arange(4), torch.arange(4))
    assert moved.tolist() == agent.tolist()


def test_the_public_run_in_float32_is_the_reference() -> None:
    module = reference().module
    model = module.Model()
    model.load_state_dict(module.make_weights({}, 3), strict=True)
    rewards, positions, logits = module.run(40, 12, 77, model)
    exact = module.rollout(40, 12, 77, weights_of(3))
    assert torch.equal(rewards, exact[0])
    assert torch.equal(positions, exact[1])
    assert rms(logits, exact[2]) < task().gate.rms_ratio["float32"] / 2


# --- the policies that are played -----------------------------------------------------------------


def steps(weights: SimpleNamespace, count: int, horizon: int, seed: int) -> Iterator[Any]:
    """Logits and paid environments of each step."""
    module = reference().module
    agent, food, numbers = module.reset(count, seed, "cpu")
    state = torch.zeros(3, count, 256, dtype=torch.float64)
    for _ in range(horizon):
        obs = module.observe(agent, food, torch.float64)
        logits, _, state = module.policy_forward(obs, state, weights)
        agent, food, numbers, reward = module.env_step(agent, food, numbers, logits.argmax(1))
        yield logits, reward


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_all_actions_occur_food_is_found_and_no_choice_is_near_a_tie(seed: int) -> None:
    actions: Counter[int] = Counter()
    paid, gap = 0, math.inf
    for logits, reward in steps(weights_of(seed), 120, 20, 1000 + seed):
        top = logits.topk(2, dim=1).values
        gap = min(gap, float((top[:, 0] - top[:, 1]).min()))
        actions.update(logits.argmax(1).tolist())
        paid += int(reward.sum())
    assert min(actions[action] for action in range(4)) > 120 * 20 * 0.15
    assert paid > 120
    assert gap > 0.15


@pytest.mark.parametrize("layer", range(3))
def test_actions_depend_on_what_each_layer_remembers(layer: int) -> None:
    pairs = latched(reference().module, weights_of(8), layer)
    assert sum(int((kept.argmax(1) != lost.argmax(1)).sum()) for kept, lost in pairs) > 0


def latched(module: Any, weights: SimpleNamespace, layer: int) -> Iterator[tuple[Any, Any]]:
    """Logits with the state of a layer kept, and forgotten in every step, along one trajectory."""
    agent, food, numbers = module.reset(150, 4, "cpu")
    kept = torch.zeros(3, 150, 256, dtype=torch.float64)
    lost = kept.clone()
    for _ in range(16):
        obs = module.observe(agent, food, torch.float64)
        with_it, _, kept = module.policy_forward(obs, kept, weights)
        lost[layer] = 0
        without, _, lost = module.policy_forward(obs, lost, weights)
        yield with_it, without
        agent, food, numbers, _ = module.env_step(agent, food, numbers, with_it.argmax(1))


def rms(got: Any, exact: Any) -> float:
    return float(((got.double() - exact).square().mean() / exact.square().mean()).sqrt())


# --- precision and mutants ------------------------------------------------------------------------

Product = Callable[[Any, Any], Any]
SIZE, SEED = (96, 10), 31


def cut(values: Any, bits: int) -> Any:
    """float32 rounded to so many bits of mantissa."""
    half = 1 << (23 - bits)
    return ((values.view(torch.int32) + half) & -(2 * half)).view(torch.float32)


def split(values: Any, kind: Any) -> tuple[Any, Any]:
    high = values.to(kind).float()
    return high, (values - high).to(kind).float()


def three_products(kind: Any, factor: float) -> Product:
    """High times high, high times low, low times high; scaled by powers of two like the oracle."""

    def product(h: Any, weight: Any) -> Any:
        a, low_a = split(h * factor, kind)
        scale = 2.0 ** math.floor(math.log2(32768 / float(weight.abs().max())))
        b, low_b = split(weight * scale, kind)
        return (a @ b.T + (a @ low_b.T + low_a @ b.T)) / (factor * scale)

    return product


def toward_zero(values: Any) -> Any:
    near = values.float()
    beyond = near.double().abs() > values.abs()
    return torch.where(beyond, torch.nextafter(near, torch.zeros_like(near)), near)


def truncating(h: Any, weight: Any) -> Any:
    """The oracle's: three float16 products, sums of 16 inputs at a time cut off at float32."""
    factor = 64.0
    scale = 2.0 ** math.floor(math.log2(32768 / float(weight.abs().max())))
    a, low_a = split(h * factor, torch.float16)
    b, low_b = split(weight * scale, torch.float16)
    total = torch.zeros(len(h), len(weight))
    for k in range(0, 256, 16):
        some = slice(k, k + 16)
        for one, other in ((a, b), (a, low_b), (low_a, b)):
            part = one[:, some].double() @ other[:, some].double().T
            total = toward_zero(total.double() + part)
    return total / (factor * scale)


def rollout_by(product: Product, count: int, horizon: int) -> tuple[Any, Any, Any]:
    """A float32 rollout whose layers multiply in some other way."""
    module, w = reference().module, weights_of(SEED, torch.float32)
    agent, food, numbers = module.reset(count, SEED, "cpu")
    state, rewards = torch.zeros(3, count, 256), torch.zeros(count, dtype=torch.int64)
    logits = torch.zeros(count, 4)
    for _ in range(horizon):
        h = module.observe(agent, food) @ w.w_enc.T + w.b_enc
        for layer in range(3):
            zh, zg, zp = product(h, w.w_gru[layer]).chunk(3, dim=1)
            state[layer] += torch.sigmoid(zg) * (torch.tanh(zh) - state[layer])
            h = h + torch.sigmoid(zp) * (state[layer] - h)
        logits = h @ w.w_a.T + w.b_a
        agent, food, numbers, reward = module.env_step(agent, food, numbers, logits.argmax(1))
        rewards += reward
    return rewards, agent, logits


def passes(found: tuple[Any, Any, Any], size: tuple[int, int]) -> bool:
    exact = reference().module.rollout(*size, SEED, weights_of(SEED))
    wanted = {"0": exact[0].numpy(), "1": exact[1].numpy(), "2": exact[2].float().numpy()}
    got = {str(n): value.numpy() for n, value in enumerate(found)}
    return all(close.passed for close in compare_all(task(), None, got, wanted, {}))


HONEST: dict[str, tuple[Product, tuple[int, int]]] = {
    "float32": (lambda h, w: h @ w.T, SIZE),
    "three bfloat16 products": (three_products(torch.bfloat16, 1.0), SIZE),
    "three float16 products": (three_products(torch.float16, 64.0), SIZE),
    "the same, cut off as tensor cores do": (truncating, (24, 4)),
}
COARSE: dict[str, Product] = {
    "one TF32 product": lambda h, w: cut(h, 10) @ cut(w, 10).T,
    "one bfloat16 product": lambda h, w: cut(h, 7) @ cut(w, 7).T,
    "one float16 product": lambda h, w: h.half().float() @ w.half().float().T,
    "a hidden unit in ten left out": lambda h, w: h[:, :230] @ w[:, :230].T,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_precision_passes(name: str) -> None:
    product, size = HONEST[name]
    assert passes(rollout_by(product, *size), size)


@pytest.mark.parametrize("name", COARSE)
def test_less_precision_or_less_work_fails(name: str) -> None:
    assert not passes(rollout_by(COARSE[name], *SIZE), SIZE)


PLAIN = (loader.LIBRARY / NAME / "public" / "reference.py").read_text("utf-8")
KEEP, MIX = "after.append(out)", "h = through * out + (1 - through) * h"
ROLLED, FOUND = "rollout(num_envs, horizon, seed, model)[:3]", "return rewards, agent, logits, gap"
MUTANTS = {
    "state not updated": (KEEP, "after.append(s)"),
    "highway left out": (MIX, "h = out"),
    "state is the layer's output": (KEEP, "after.append(h)"),
    "gates left out of the state": (
        "torch.sigmoid(zg) * (torch.tanh(zh) - s)",
        "torch.tanh(zh) - s",
    ),
    "last layer left out": (MIX, f"{MIX} if len(after) < 2 else h"),
    "only paid generators advance": (
        "torch.where(hit.any(), second, rng)",
        "torch.where(hit, second, rng)",
    ),
    "generators advance in every step": ("torch.where(hit.any(), second, rng)", "second"),
    "advanced once": ("torch.where(hit.any(), second, rng)", "torch.where(hit.any(), first, rng)"),
    "a generator of 64 bits": ("(first * LCG + 1) & MASK", "first * LCG + 1"),
    "no food after the first": ("torch.where(hit[:, None], fresh, food)", "food"),
    "no border": (".clamp(0, GRID - 1)", ""),
    "x and y swapped": ("[[0, -1], [0, 1], [-1, 0], [1, 0]]", "[[-1, 0], [1, 0], [0, -1], [0, 1]]"),
    "a constant action": ("logits.argmax(dim=1))", "logits.argmax(dim=1) * 0)"),
    "a step too few": ("for _ in range(horizon):", "for _ in range(max(horizon - 1, 1)):"),
    "seed of 16 bits": ("manual_seed(seed)\n    agent", "manual_seed(seed % 65536)\n    agent"),
    "logits of something else": (FOUND, FOUND.replace("logits", "top.repeat(1, 2)")),
    "zeros": (f"return {ROLLED}", f"return [value * 0 for value in {ROLLED}]"),
}


def failed(source: str, cases: list[Case]) -> str | None:
    """The first case that a source gets wrong."""
    offered = entries(task(), source)
    adapter = loader.execute(task(), "public/adapter.py", ("setup", "run"))
    for case in cases:
        if case.requires and offered.policy_forward is None:
            continue
        weights = {n: torch.from_numpy(v.copy()) for n, v in case.params["weights"].items()}  # type: ignore[union-attr]
        state = adapter.setup(offered, {**case.params, "weights": weights})
        for call, wanted in zip(case.calls, case.expected, strict=True):
            inputs = {name: torch.from_numpy(np.array(value)) for name, value in call.items()}
            outputs = adapter.run(offered, state, inputs)
            got = {str(n): value.detach().numpy() for n, value in enumerate(outputs)}
            if not all(close.passed for close in compare_all(task(), case, got, wanted, call)):
                return case.name
    return None


def test_the_plain_source_passes_every_case() -> None:
    assert failed(PLAIN, sealed()) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_caught(name: str) -> None:
    before, after = MUTANTS[name]
    assert before in PLAIN
    assert failed(PLAIN.replace(before, after), sealed()) is not None


def test_naive_is_right_and_wrong_is_wrong_in_the_cases() -> None:
    assert failed(shipped(task(), "naive"), sealed()) is None
    assert failed(shipped(task(), "wrong"), sealed()) is not None


def test_what_is_not_named_as_in_the_prompt_is_found_by_its_names() -> None:
    source = PLAIN.replace("def policy_forward(obs, state, model)", "def inner(obs, state, model)")
    source = source.replace("policy_forward(obs[some], state", "inner(obs[some], state")
    source += (
        "\n\ndef policy_forward(model, observation, hidden):\n"
        "    logits, value, after = inner(observation, hidden, model)\n    return after, logits\n"
    )
    steps_alone = [case for case in sealed() if case.requires]
    assert len(steps_alone) == 4
    assert failed(source, steps_alone) is None


# --- the folder -----------------------------------------------------------------------------------


def test_formulas_count_the_policy_and_the_floor_stays_below() -> None:
    shapes = {shape.name: work(task(), shape) for shape in task().shapes}
    done = shapes["n4096_h32"]
    assert done.flops == 4096 * 32 * 1183744
    assert done.bytes == 4 * sum(map(math.prod, policy_shapes())) + 4096 * (8 + 16 + 16)
    for found in shapes.values():
        assert found.floor_flops < 0.2 * found.flops
        assert found.floor_bytes < found.bytes


def policy_shapes() -> list[tuple[int, ...]]:
    return [s for name, s in reference().module.SHAPES.items() if not name.endswith("_v")]


def grade(kind: str) -> Any:
    folder = task().folder / "submissions" / kind
    asked = GradeRequest(task(), folder, device="cpu", tier="quick", correctness_only=True)
    return RefereeGrader().grade(asked)


def test_the_referee_passes_naive_and_fails_wrong() -> None:
    assert grade("naive").result is GradeResult.PASS
    assert grade("wrong").result is GradeResult.WRONG
