import pytest
from pydantic import ValidationError

from tasks.hardware import Hardware, load, match


def test_every_row_has_a_source_and_peaks_that_are_sourced_or_measured():
    for key, row in load().items():
        assert row.source, key
        assert (row.bandwidth_gbs is None) == (row.peaks == "measured"), key


def test_a_datasheet_row_without_peaks_is_refused():
    with pytest.raises(ValidationError, match="bandwidth_gbs and tflops are needed"):
        Hardware(name="x", kind="cuda", peaks="datasheet", source="datasheet")


def test_a_device_is_matched_by_its_full_name():
    assert match("NVIDIA H200") == "H200"
    assert match("nvidia h100 pcie") == "H100_PCIE"
    assert match("NVIDIA H200 NVL") is None
    assert match("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition") is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100_SXM_80GB"),
        ("NVIDIA A100 80GB PCIe", "A100_PCIE_80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100_40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", "RTX_4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 5090", "RTX_5090"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090", "RTX_3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
    ],
)
def test_variants_of_a_chip_are_told_apart(name, key):
    assert match(name) == key


def test_figures_are_dense():
    """No vendor doubles twice from bfloat16 to FP8; a sparse figure beside a dense one would."""
    for key, row in load().items():
        if row.kind == "cuda":
            assert row.tflops["float16"] == row.tflops["bfloat16"], key
            eight = row.tflops.get("float8_e4m3", 2 * row.tflops["bfloat16"])
            assert eight / row.tflops["bfloat16"] == pytest.approx(2, rel=0.02), key


def test_no_name_belongs_to_two_rows():
    names = [name.lower() for row in load().values() for name in row.device_names]
    assert len(names) == len(set(names))
