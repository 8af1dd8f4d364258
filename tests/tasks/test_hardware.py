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


def test_no_name_belongs_to_two_rows():
    names = [name.lower() for row in load().values() for name in row.device_names]
    assert len(names) == len(set(names))
