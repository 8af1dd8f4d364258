"""What the driver says of a GPU, from its tool's own words, and when a grade is void for it."""

import os
import re

import pytest

from drivers import LOST, install, state
from graders import gpu_rules
from graders.errors import GraderVoid
from graders.gpu_rules import Readings, busy, disturbed, settled, watched
from graders.gpu_state import count_foreign, parsed, reading, summary
from transcripts.records import GpuReading

THERMAL = "0x0000000000000060"  # software and hardware thermal slowdown
POWER_CAP = "0x0000000000000004"


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Make the driver answer with these states, one a reading."""

    def answer(*states):
        folder = install(tmp_path / f"driver-{len(list(tmp_path.iterdir()))}", *states)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    monkeypatch.setattr(gpu_rules, "_POLL_S", 0.0)
    return answer


def test_a_reading_holds_what_the_driver_says(driver):
    driver(state())
    assert reading("GPU-1") == GpuReading(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=31,
        power_w=117.04,
        power_limit_w=700.0,
        utilisation_percent=0,
        memory_used_mib=4,
        foreign_processes=0,
        persistence=True,
        mig="Disabled",
    )


@pytest.mark.parametrize("words", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "nan", ""])
def test_what_is_no_figure_is_none(words, driver):
    driver(
        state(
            temperature__gpu=words,
            power__limit=words,
            persistence_mode=words,
            mig__mode__current=words,
            clocks_event_reasons__active=words,
            clocks_throttle_reasons__active=words,
        )
    )
    read = reading("GPU-1")
    assert read is not None and read.sm_clock_mhz == 1980
    told = (read.temperature_c, read.power_limit_w, read.persistence)
    assert told == (None, None, None) and read.throttled_by == ()
    assert read.mig in (None, "nan")


def test_an_old_driver_is_asked_without_the_fields_that_it_does_not_know(driver):
    driver(
        state(
            without=("clocks_event_reasons.active", "mig.mode.current"),
            clocks_throttle_reasons__active=POWER_CAP,
        )
    )
    read = reading("GPU-1")
    assert read is not None and read.mig is None and read.power_limit_w == 700
    assert read.throttled_by == ("sw_power_cap",)


def test_a_lost_gpu_and_a_missing_driver_give_no_reading(driver, monkeypatch, tmp_path):
    driver(LOST)
    assert reading("GPU-1") is None and "no longer answers" in busy(reading("GPU-1"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert reading("GPU-1") is None


def test_reasons_are_named_and_idleness_is_none():
    mask = {"clocks_event_reasons.active": "0x00000000000001ed"}
    assert parsed(mask).throttled_by == (
        *("sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown"),
        *("hw_power_brake_slowdown", "display_clock_setting"),
    )
    unknown = parsed({"clocks_event_reasons.active": "0x1000"})
    assert unknown.throttled_by == ("reason 0x1000",) and not busy(unknown)


def test_counters_of_slowdowns_are_added_where_the_driver_has_them():
    names = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    counted = {f"clocks_event_reasons_counters.{name}": "700" for name in names[:2]}
    assert parsed(counted).slowed_us == 1400
    assert parsed({}).slowed_us is None


def test_our_own_processes_are_told_from_foreign_ones(driver):
    driver(state(processes=[os.getpid(), 7, 8]))
    assert reading("GPU-1", ours=[8]).foreign_processes == 1
    assert count_foreign([os.getpid(), 7, 8], [os.getpid(), 8], exact=True) == 1


def test_in_another_namespace_each_of_ours_that_holds_a_gpu_accounts_for_one(tmp_path):
    """The driver's numbers mean nothing there; an open device node does."""
    node = tmp_path / "nvidia0"
    node.touch()
    named = re.compile(re.escape(str(node)))
    ours = [os.getpid()]
    assert count_foreign([901, 902], ours, exact=False, nodes=named) == 2
    with node.open():
        assert count_foreign([901, 902], ours, exact=False, nodes=named) == 1
        assert count_foreign([], ours, exact=False, nodes=named) == 0
        assert count_foreign([901, 902], ours, exact=True, nodes=named) == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"foreign_processes": 2}, "2 compute process.* end them"),
        ({"throttled_by": ("hw_thermal_slowdown",)}, "hw_thermal_slowdown.*cooling"),
        ({"throttled_by": ("hw_power_brake_slowdown", "sw_power_cap")}, r"\(hw_power_brake"),
        ({"throttled_by": ("sw_thermal_slowdown",)}, "held down"),
        ({"mig": "Enabled"}, "nvidia-smi -mig 0"),
        ({"utilisation_percent": 40}, "somebody uses it \\(40%\\): wait for them to end$"),
        ({"utilisation_percent": 40, "persistence": False}, "nvidia-smi -pm 1"),
    ],
)
def test_contention_and_slowdowns_keep_a_gpu_from_being_measured(changed, told):
    with pytest.raises(GraderVoid, match=told.rstrip("$")):
        gpu_rules.require(busy(GpuReading(**changed)), "GPU-1")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"throttled_by": ("sw_power_cap",)},
        {"throttled_by": ("applications_clocks_setting", "sync_boost")},
        {"utilisation_percent": 5},
        {"foreign_processes": 0, "mig": "Disabled", "persistence": False},
    ],
)
def test_a_power_cap_and_an_operators_clocks_do_not(changed):
    assert busy(GpuReading(**changed)) == ""


def test_our_own_use_of_the_gpu_does_not_disturb_the_measurement():
    before, after = GpuReading(utilisation_percent=0), GpuReading(utilisation_percent=100)
    assert disturbed(before, after) == ""


def test_a_slowdown_between_two_readings_shows_in_the_counters():
    before = GpuReading(slowed_us=5_000_000)
    assert "40 ms" in disturbed(before, GpuReading(slowed_us=5_040_000))
    assert disturbed(before, GpuReading(slowed_us=5_000_900)) == ""
    assert disturbed(before, GpuReading()) == ""


def test_work_that_ends_in_time_is_waited_for(driver):
    driver(state(utilization__gpu="93"), state(utilization__gpu="40"), state())
    assert settled("GPU-1", patience_s=30).utilisation_percent == 0


def test_waiting_has_an_end(driver):
    driver(state(utilization__gpu="93"))
    assert settled("GPU-1", patience_s=0.2).utilisation_percent == 93


def test_an_isolated_measurement_is_void_for_a_guest_that_came_meanwhile(driver, monkeypatch):
    monkeypatch.setattr(gpu_rules, "_ENDING_S", 0.0)
    driver(state(), state(processes=[1]))
    readings = Readings()
    with (
        pytest.raises(GraderVoid, match="GPU GPU-1 cannot be measured on: 1 compute process"),
        watched("GPU-1", True, readings),
    ):
        pass
    assert readings.before.foreign_processes == 0 and readings.after.foreign_processes == 1


def test_a_measurement_during_a_session_records_and_refuses_nothing(driver):
    driver(state(utilization__gpu="93"), state(clocks_event_reasons__active=THERMAL))
    readings = Readings()
    with watched("GPU-1", False, readings):
        pass
    assert readings.before.utilisation_percent == 93
    assert readings.after.throttled_by == ("sw_thermal_slowdown", "hw_thermal_slowdown")


def test_an_error_from_inside_stays_what_it_is(driver):
    driver(state(), state(clocks_event_reasons__active=THERMAL))
    readings = Readings()
    with pytest.raises(KeyError), watched("GPU-1", True, readings):
        raise KeyError("the submission's")
    assert readings.after is not None


def test_on_a_cpu_nothing_is_asked(driver):
    driver(LOST)
    readings = Readings()
    with watched("cpu", True, readings):
        pass
    assert readings == Readings()


def test_a_reading_is_told_in_one_line():
    told = summary(GpuReading(sm_clock_mhz=1980, power_w=117.0, power_limit_w=700, mig="Disabled"))
    assert told == "SM 1980 MHz, 117.0 of 700.0 W, MIG Disabled"
    assert summary(None) == "the driver gives no state"
