"""What one GPU reaches, measured once and remembered: copy bandwidth and matrix products.

Remembered by UUID in ``ceilings.json`` of the user's cache folder, beside the driver, torch and the
code that measured; another driver, torch or method measures again. What was measured on a GPU that
somebody disturbed is not kept.
"""

import threading
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from graders import gpu_rules, launch, machine, remembered
from graders.errors import GraderVoid, SubmissionFailed
from graders.referee import WorkerSession

FILE = "ceilings.json"
_ADAPTER = "trusted_gpu_ceiling.py"
_PACKAGES = ("numpy", "torch", "triton")
_MEMORY = 4 << 30  # of the host
_BUILD_S, _CALL_S = 120.0, 120.0  # torch's import and the start of a context; the work is under 2 s
_measuring = threading.Lock()
_known: dict[str, "Remembered"] = {}


class Remembered(BaseModel):
    """One entry of the file. Figures in 1e9 byte/s and 1e9 FLOP/s."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    driver: str
    torch: str
    method: str  # digest of the adapter
    bandwidth_gbs: PositiveFloat
    bfloat16_gflops: PositiveFloat
    float32_gflops: PositiveFloat

    @property
    def ceilings(self) -> machine.Ceilings:
        """As graders use them."""
        others = {"bfloat16": self.bfloat16_gflops}
        return machine.Ceilings(self.bandwidth_gbs, self.float32_gflops, others)


def ceilings(uuid: str, isolation: str) -> machine.Ceilings:
    """From memory, else measured now: call it in the GPU's turn. Raises GraderVoid."""
    with _measuring:
        found = _recalled(uuid) or _measured(uuid, isolation)
        _known[uuid] = found
        return found.ceilings


def recalled(uuid: str) -> machine.Ceilings | None:
    """From memory only, for who has no turn of his own on the GPU."""
    found = _recalled(uuid)
    return found.ceilings if found else None


def _recalled(uuid: str) -> Remembered | None:
    """Of this process or of the file, if it was measured with what there is now."""
    found = _known.get(uuid)
    if found is None:
        try:
            found = Remembered.model_validate(remembered.load(FILE).get(uuid), strict=True)
        except ValidationError:
            return None
    return found if (found.driver, found.torch, found.method) == _made_with(uuid) else None


def _measured(uuid: str, isolation: str) -> Remembered:
    before = gpu_rules.settled(uuid)
    gpu_rules.require(gpu_rules.busy(before), uuid)
    figures = _measure(uuid, isolation)
    gpu_rules.require(gpu_rules.disturbed(before, gpu_rules.afterwards(uuid)), uuid)
    driver, torch, method = _made_with(uuid)
    bandwidth, bfloat16, float32 = figures
    try:
        found = Remembered(
            driver=driver,
            torch=torch,
            method=method,
            bandwidth_gbs=bandwidth,
            bfloat16_gflops=bfloat16,
            float32_gflops=float32,
        )
    except ValidationError as error:
        raise GraderVoid(f"the ceilings of GPU {uuid} are no figures: {figures}") from error
    remembered.store(FILE, {uuid: found.model_dump()})
    return found


def _measure(uuid: str, isolation: str) -> tuple[float, ...]:
    names = ("bandwidth", "bfloat16", "float32")
    with launch.world(Path(__file__).parent / _ADAPTER, None, isolation, _PACKAGES) as place:
        try:
            with WorkerSession(place, _MEMORY, device=uuid) as session:
                session.build(None, names, uuid, _BUILD_S)
                session.setup({}, _BUILD_S)
                answer = session.call({}, 1 << 12, _CALL_S)
        except SubmissionFailed as error:
            raise GraderVoid(f"the ceilings of GPU {uuid} cannot be measured: {error}") from error
    return tuple(float(answer.outputs[name]) for name in names)


def _made_with(uuid: str) -> tuple[str, str, str]:
    """Driver, torch and method."""
    gpu = next((gpu for gpu in machine.gpus() if gpu.uuid == uuid), None)
    torch = dict(machine.versions(uuid)).get("torch", "")
    return gpu.driver if gpu else "", torch, machine.code_digest(f"graders/{_ADAPTER}")
