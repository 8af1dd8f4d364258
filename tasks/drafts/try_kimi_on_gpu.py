"""On a GPU: is the oracle right, and how long is a step (and one of the baseline, where it is there)?

    python tasks/drafts/try_kimi_on_gpu.py [oracle folder]
"""

import importlib.util
import statistics
import sys
import time
import tomllib
from pathlib import Path

import torch

HERE = Path(__file__).parent.parent / "library" / "kimi-linear-decode"


def module(path, name):
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def off(one, other):
    one, other = one.double(), other.double()
    return float(((one - other).square().mean() / other.square().mean()).sqrt())


def with_room(state):
    for held in state:
        for name in ("c_kv", "k_rope"):
            if name in held:
                old = held[name]
                room = old.new_empty(len(old) + 64, old.shape[1])
                room[: len(old)] = old
                held[name] = room[: len(old)]
    return state


def timed(step, states, hidden, cold, n=40):
    milliseconds, host = [], []
    for i in range(n):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.zero_()
        torch.cuda.synchronize()
        start.record()
        began = time.perf_counter()
        step(hidden, states[i % len(states)])
        host.append(time.perf_counter() - began)
        end.record()
        torch.cuda.synchronize()
        milliseconds.append(start.elapsed_time(end))
    queued = []
    for i in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.zero_()
        torch.cuda._sleep(2_000_000)
        start.record()
        step(hidden, states[i % len(states)])
        end.record()
        torch.cuda.synchronize()
        queued.append(start.elapsed_time(end))
    m = statistics.median
    return f"events {m(milliseconds[10:]):.4f} ms, queued {m(queued[5:]):.4f} ms, host {m(host[10:]) * 1e6:.0f} us"


def main():
    reference = module(HERE / "public" / "reference.py", "kimi_reference")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "submissions" / "oracle"
    began = time.time()
    oracle = module(folder / "solution.py", "solution")
    task = tomllib.loads((HERE / "task.toml").read_text())
    cold = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    baseline = HERE / "public" / "baseline.py"
    models = {"oracle": oracle}
    if baseline.is_file():
        models["baseline"] = module(baseline, "baseline")
    weights, last = None, None
    for shape in (*task["smoke"], *task["shapes"]):
        dims = shape["dims"]
        cfg = reference.build_config(dims)
        if weights is None or last != (cfg, dims["ctx"]):
            weights, last = reference.make_weights(dims, 1, "cuda"), (cfg, dims["ctx"])
        for name, given in models.items():
            with torch.device("cuda"):
                model = given.Model(cfg)
            model.load_state_dict({n: w for n, w in weights.items() if not n.startswith("state.")}, strict=True)
            for seed in range(3):
                (call,) = reference.make_inputs(dims, seed, "cuda")["calls"]
                state = with_room(reference.nested(call, weights, cfg))
                with torch.no_grad():
                    wanted, after = reference.step(weights, cfg, call["hidden"], reference.nested(call, weights, cfg))
                    got, new = model.step(call["hidden"], state)
                torch.cuda.synchronize()
                errors = {"hidden": off(got, wanted)}
                for n, (held, right) in enumerate(zip(new, after, strict=True)):
                    errors |= {f"{n}.{leaf}": off(held[leaf], right[leaf]) for leaf in right}
                worst = max(errors, key=lambda leaf: errors[leaf])
                print(shape["name"], name, "seed", seed, f"hidden {errors['hidden']:.5f}, worst {worst} {errors[worst]:.5f}", f"{time.time() - began:.0f} s", flush=True)
            if shape in task["shapes"]:
                states, token = [], call["hidden"]
                for seed in range(4):
                    (call,) = reference.make_inputs(dims, seed, "cuda")["calls"]
                    states.append(with_room(reference.nested(call, weights, cfg)))
                with torch.no_grad():
                    print(shape["name"], name, timed(model.step, states, token, cold), flush=True)
                    from torch.profiler import ProfilerActivity, profile

                    with profile(activities=[ProfilerActivity.CUDA]) as seen:
                        model.step(token, states[0])
                        torch.cuda.synchronize()
                    print("   launches:", sum(e.count for e in seen.key_averages() if e.device_time_total > 0))
            del model


main()
