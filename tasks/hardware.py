"""The hardware table: peaks that scores are fractions of. Data and sources: ``hardware.toml``."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tasks.declaration import read_model
from tasks.spec import TaskPart

_TABLE = Path(__file__).parent / "hardware.toml"


class Hardware(TaskPart):
    """One device. Peaks are dense; None where the vendor states none or it is measured."""

    name: str
    kind: Literal["cpu", "cuda"]
    peaks: Literal["datasheet", "measured"]
    device_names: tuple[str, ...] = ()  # full names that the driver reports
    sm: str | None = None  # compute capability, "9.0"
    bandwidth_gbs: float | None = None  # 1e9 byte/s
    tflops: dict[str, float] = Field(default_factory=dict)  # 1e12 FLOP/s by dtype, dense
    l2_bytes: int | None = None
    source: str

    @model_validator(mode="after")
    def _has_peaks(self) -> "Hardware":
        if self.peaks == "datasheet" and (self.bandwidth_gbs is None or not self.tflops):
            raise ValueError("peaks are from a datasheet, so bandwidth_gbs and tflops are needed")
        return self


class _Table(TaskPart):
    hardware: dict[str, Hardware]


@cache
def load() -> Mapping[str, Hardware]:
    """All rows by key. Raises BrokenTask for a broken table."""
    return read_model(_TABLE, _Table).hardware


def match(device_name: str) -> str | None:
    """The key of the row that lists a device's reported name, in any case; None when none does."""
    wanted = device_name.strip().lower()
    for key, row in load().items():
        if wanted in (name.lower() for name in row.device_names):
            return key
    return None
