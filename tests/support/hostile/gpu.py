"""The device: kernels that fail, never end, take all memory, or write too late.

For the task `row-softmax` on a GPU; a body runs in the first lines of ``softmax(x)``.
"""

from hostile.base import MEANS, Attack

HONEST = "    return torch.softmax(x, dim=1)\n"

WILD = """
import triton
import triton.language as tl

@triton.jit
def wild(pointer, far):
    tl.store(pointer + far, 1.0)
"""

CALLBACK = """
CUDA = ctypes.CDLL('libcuda.so.1')
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def leave(_): os._exit(0)
"""


def on_gpu(
    name: str, word: str, tries: str, body: str, head: str = "", finding: str = ""
) -> Attack:
    """An attack whose ``softmax`` starts with ``body``."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    text = f"from means import *\nimport torch\n{head}\n\ndef softmax(x):\n{lines}{HONEST}"
    return Attack(name, word, tries, {"solution.py": text, "means.py": MEANS.lstrip()}, finding)


ATTACKS = (
    on_gpu(
        "a device-side assert",
        "crash",
        "an index outside its tensor, in a kernel",
        "x.view(-1)[torch.tensor([x.numel() + 9], device='cuda')]",
    ),
    on_gpu(
        "a swallowed device-side assert",
        "crash",
        "the error is caught, the context stays broken",
        """
try:
    x.view(-1)[torch.tensor([x.numel() + 9], device='cuda')]
    torch.cuda.synchronize()
except RuntimeError: pass
return x
""",
    ),
    on_gpu(
        "an illegal access",
        "illegal_access",
        "a kernel that writes a terabyte away",
        "wild[(1,)](x, 1 << 38)",
        WILD,
    ),
    on_gpu("an endless kernel", "timeout", "spins for centuries", "torch.cuda._sleep(1 << 62)"),
    on_gpu(
        "an endless kernel on the side",
        "timeout",
        "spins on a stream of its own, and answers",
        "with torch.cuda.stream(torch.cuda.Stream()): torch.cuda._sleep(1 << 62)",
    ),
    on_gpu(
        "device memory bomb",
        "memory",
        "tensors without end",
        "hoard = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(1000)]",
    ),
    on_gpu(
        "pinned memory bomb",
        "memory",
        "host memory that the driver locks",
        """
hoard = []
for _ in range(64):
    hoard.append(torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True).fill_(1))
won('64 GB of host memory')
""",
    ),
    on_gpu(
        "a side stream that is not joined",
        "wrong",
        "computes on another stream, and returns before it is done",
        """
side = torch.cuda.Stream()
y = torch.zeros_like(x)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.cuda._sleep(50_000_000)
    y.copy_(torch.softmax(x, dim=1))
return y
""",
    ),
    on_gpu(
        "a kernel after the return",
        "pass",
        "a thread that overwrites the output later: it has been copied by then",
        "y = torch.softmax(x, dim=1)\nlater(y.zero_, wait=0.02)\nreturn y",
    ),
    on_gpu(
        "a lazy tensor",
        "wrong",
        "a subclass that computes when it is used",
        "return Lazy(x)",
        """
class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x): return torch.Tensor._make_subclass(cls, x)
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            plain = torch.softmax(args[0].as_subclass(torch.Tensor), dim=1)
            return function(plain, *args[1:], **(kwargs or {}))
""",
    ),
    on_gpu(
        "resets the device",
        "crash",
        "destroys the context under the worker's feet",
        "ctypes.CDLL('libcuda.so.1').cuDevicePrimaryCtxReset_v2(0)",
    ),
    on_gpu(
        "exits inside a callback",
        "crash",
        "`os._exit(0)` in a host function of a stream",
        "stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)\n"
        "CUDA.cuLaunchHostFunc(stream, leave, None)",
        CALLBACK,
    ),
    on_gpu(
        "a capture without an end",
        "crash",
        "leaves a stream in the capture of a graph",
        """
torch.cuda.set_stream(torch.cuda.Stream())
torch.cuda.CUDAGraph().capture_begin()
""",
    ),
    on_gpu(
        "patches the synchronisation",
        "pass",
        "`torch.cuda.synchronize` does nothing: copying the outputs waits all the same",
        "pass",
        "torch.cuda.synchronize = lambda *a, **k: None",
    ),
    on_gpu(
        "patches torch",
        "wrong",
        "`allclose`, `equal`, `testing` and `Tensor.__eq__` say yes",
        "return x",
        """
torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None
torch.Tensor.__eq__ = lambda *a: True
""",
    ),
    on_gpu(
        "patches the events",
        "pass",
        "`Event.elapsed_time` says nothing: the figures do not rest on it",
        "pass",
        "torch.cuda.Event.elapsed_time = lambda *a: 0.0",
    ),
    on_gpu(
        "caches by address",
        "wrong",
        "the result of the first call with this address",
        "key = (x.data_ptr(), x.shape)\nif key not in kept: kept[key] = torch.softmax(x, dim=1)\n"
        "return kept[key].clone()",
        "kept = {}",
    ),
    on_gpu("writes over its input", "wrong", "in place", "return x.copy_(torch.softmax(x, dim=1))"),
    on_gpu(
        "a context left behind",
        "pass",
        "a process of its own that holds device memory and lives on",
        """
if first():
    hold = "import torch, time; x = torch.zeros(1 << 28, device='cuda'); time.sleep(600)"
    subprocess.Popen([sys.executable, '-c', hold], start_new_session=True)
    time.sleep(5)
""",
        finding="process:left-behind",
    ),
    on_gpu(
        "sets the device",
        "pass",
        "another device, other clocks, other limits: refused, or its own",
        """
for words in (['-rgc'], ['-lgc', '300'], ['-pl', '200'], ['-c', '3'], ['--gpu-reset']):
    try: done = subprocess.run(['nvidia-smi', *words], capture_output=True, timeout=10)
    except OSError: break
    if done.returncode == 0: won(words)
""",
    ),
)
