"""What a machine is called. The texts are recorded from machines, cut to the lines that matter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.bench import cpu, gpu, probe
from perfci.bench.gpu import Gpu, Process
from perfci.config import HardwareRule
from perfci.model import Hardware

EPYC = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC 9B45 128-Core Processor
stepping\t: 1
microcode\t: 0x{microcode}
cpu MHz\t\t: {mhz}
cache size\t: 1024 KB
bogomips\t: {bogomips}
"""
HIDDEN = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 167
model name\t: Intel(R) Xeon(R) Processor
cpu MHz\t\t: 2599.998
"""
LABELS = {
    "Intel(R) Xeon(R) Platinum 8480+": "xeon-platinum-8480",
    "Intel(R) Xeon(R) CPU @ 2.20GHz": "xeon-f6m85",
    "Intel(R) Core(TM) i7-1185G7 @ 3.00GHz": "core-i7-1185g7",
    "11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz": "11th-gen-core-i7-1185g7",
    "AMD EPYC 7763 64-Core Processor": "epyc-7763",
    "AMD Ryzen 7 5800X 8-Core Processor": "ryzen-7-5800x",
}


def epyc(*, mhz: float = 2699.998, microcode: str = "b00211e", bogomips: float = 5399.99) -> str:
    return EPYC.format(mhz=mhz, microcode=microcode, bogomips=bogomips)


@given(st.lists(st.floats(800, 6000), min_size=1, max_size=8), st.integers(0, 2**24), st.floats(1000, 9999))
def test_clocks_microcode_and_their_mixture_over_the_cores_do_not_make_another_machine(
    clocks: list[float], microcode: int, bogomips: float
) -> None:
    text = "\n".join(epyc(mhz=mhz, microcode=f"{microcode:x}", bogomips=bogomips) for mhz in clocks)
    assert cpu.parse_cpuinfo(text) == cpu.parse_cpuinfo(epyc())


def test_the_fingerprint_that_fluttered_is_one_machine() -> None:
    """10678x4 one night and 10678x3,10681x1 the next: four cores' speeds, rounded, in a public tracker."""
    one_night = "\n".join(epyc(bogomips=value) for value in (10678, 10678, 10678, 10678))
    the_next = "\n".join(epyc(bogomips=value) for value in (10678, 10678, 10678, 10681))
    names = {probe.cpu_hardware(cpu.parse_cpuinfo(text), 4) for text in (one_night, the_next)}
    assert names == {Hardware(name="cpu-epyc-9b45-4c", model="AMD EPYC 9B45 128-Core Processor")}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_becomes_a_short_stable_name(label: str) -> None:
    text = f"cpu family : 6\nmodel : 85\nmodel name : {label}\n"
    found = cpu.parse_cpuinfo(text)
    assert found.name == LABELS[label]
    assert "GHz" not in found.model
    HardwareRule(name=f"cpu-{found.name}-2c")  # usable as a name in the settings


def test_where_a_hypervisor_hides_the_model_family_and_number_tell_machines_apart() -> None:
    assert cpu.parse_cpuinfo(HIDDEN).name == "xeon-f6m167"
    assert cpu.parse_cpuinfo(HIDDEN.replace("167", "106")).name == "xeon-f6m106"


def test_arm_tells_numbers_alone_and_no_text_is_unknown() -> None:
    assert cpu.parse_cpuinfo("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n").name == "0x41-0xd40"
    assert cpu.parse_cpuinfo("").name == "unknown"


@pytest.mark.parametrize(
    ("v2", "quota", "period", "cores"),
    [
        ("max 100000\n", "", "", None),
        ("200000 100000\n", "", "", 2.0),
        ("", "-1\n", "100000\n", None),
        ("", "150000\n", "100000\n", 1.5),
        ("", "", "", None),
        ("garbage", "0", "0", None),
    ],
)
def test_a_control_groups_quota_is_read_in_both_versions(v2: str, quota: str, period: str, cores: float | None) -> None:
    assert cpu.parse_quota(v2=v2, v1_quota=quota, v1_period=period) == cores


def test_sizes_and_memory_are_read_in_bytes() -> None:
    assert [cpu.parse_size(text) for text in ("48K\n", "32M", "1G", "64", "much", "")] == [
        48 * 1024,
        32 << 20,
        1 << 30,
        64,
        0,
        0,
    ]
    assert cpu.parse_available_memory("MemTotal: 9 kB\nMemAvailable:   23848788 kB\n") == 23848788 * 1024
    assert cpu.parse_available_memory("") == 0


H200 = Gpu(
    index=0,
    uuid="GPU-11111111-2222-3333-4444-555555555555",
    model="NVIDIA H200",
    memory_bytes=150_754_820_096,
    power_cap_w=700.0,
    default_power_cap_w=700.0,
    ecc=True,
    persistence=True,
    max_sm_clock_hz=1.98e9,
    max_memory_clock_hz=3.201e9,
)


def a_gpu(**changes: object) -> Gpu:
    values = {name: getattr(H200, name) for name in H200.__slots__}
    return Gpu(**{**values, **changes})  # type: ignore[arg-type]


def test_a_gpu_is_named_by_model_count_partition_and_changed_power_cap() -> None:
    second = a_gpu(index=1, uuid="GPU-9")
    names = [
        probe.gpu_hardware(devices).name
        for devices in (
            [H200],
            [H200, second],
            [a_gpu(power_cap_w=500.0)],
            [a_gpu(partition="1g.18gb")],
            [a_gpu(model="NVIDIA A100-SXM4-40GB")],
            [a_gpu(model="NVIDIA GeForce RTX 4090")],
            [a_gpu(model="Tesla V100-SXM2-16GB")],
        )
    ]
    assert names == [
        "h200",
        "h200-x2",
        "h200-500w",
        "h200-1g.18gb",
        "a100-sxm4-40gb",
        "rtx-4090",
        "v100-sxm2-16gb",
    ]


@given(st.integers(-(2**28), 2**28), st.floats(-0.4, 0.4))
def test_what_firmware_reserves_and_a_limit_that_jitters_do_not_make_another_class(memory: int, watts: float) -> None:
    jittered = a_gpu(memory_bytes=140 * 2**30 + memory, power_cap_w=700 + watts, default_power_cap_w=700.0)
    assert probe.gpu_hardware([jittered]) == probe.gpu_hardware([a_gpu(memory_bytes=140 * 2**30)])


def test_settings_of_a_device_are_told_in_one_line_of_the_environment() -> None:
    assert gpu.settings(H200) == {
        "ecc": "on",
        "persistence": "on",
        "power_cap": "700W",
        "sm_clock_limit": "1980MHz",
        "memory_clock_limit": "3201MHz",
    }
    assert gpu.settings(Gpu(index=0, uuid="", model="NVIDIA H200")) == {}


def rules(**matches: str) -> dict[str, HardwareRule]:
    return {name.replace("_", "-"): HardwareRule(name.replace("_", "-"), match=m) for name, m in matches.items()}


def test_a_rule_of_the_settings_names_the_hardware_that_it_matches() -> None:
    one, two = probe.gpu_hardware([H200]), probe.gpu_hardware([H200, a_gpu(index=1)])
    assert probe.named(one, {}).name == "h200"
    assert probe.named(one, rules(lab="h200", other="A100")).name == "lab"
    # Two of them are another hardware, at another price.
    assert probe.named(two, rules(lab="H200")).name == "lab-x2"
    assert probe.named(two, rules(lab="H200", lab_x2="H200")).name == "lab-x2"
    assert probe.named(two, rules(h200="H200", h200_x2="H200")).name == "h200-x2"
    # The longer match is the more special one; a rule without a match names nothing.
    assert probe.named(one, rules(any_gpu="NVIDIA", lab="NVIDIA H200")).name == "lab"
    assert probe.named(one, rules(queue_only="")).name == "h200"
    assert probe.named(probe.cpu_hardware(cpu.parse_cpuinfo(epyc()), 2), rules(ci="EPYC 9B45")).name == "ci"


def test_visible_devices_are_read_as_cuda_reads_them() -> None:
    four = [a_gpu(index=i, uuid=f"GPU-{i}abc") for i in range(4)]
    slices = [a_gpu(uuid=f"MIG-{i}", partition="1g.18gb") for i in range(2)]

    def seen(found: list[Gpu], setting: str | None) -> list[str]:
        return [device.uuid for device in gpu.visible(found, setting)]

    assert seen(four, None) == ["GPU-0abc", "GPU-1abc", "GPU-2abc", "GPU-3abc"]
    assert seen(four, "2,0") == ["GPU-2abc", "GPU-0abc"]
    assert seen(four, "GPU-3") == ["GPU-3abc"]
    assert seen(four, "1,7,2") == ["GPU-1abc"]  # all after the first that does not exist are hidden
    assert seen(four, "") == seen(four, "-1") == seen(four, "NoDevFiles") == []
    assert seen(slices, None) == seen(slices, "0") == ["MIG-0"]
    assert seen(slices, "MIG-1") == ["MIG-1"]


def test_the_drivers_own_files_are_enough_without_the_management_library() -> None:
    version = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build  (builder)\n"
        "GCC version:  gcc version 12.3.0\n"
    )
    assert gpu.parse_driver_version(version) == "580.159"
    assert gpu.parse_driver_version("") == ""
    information = (
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 104\nGPU UUID: \t GPU-1111\n"
        "Video BIOS: \t 96.00\nBus Location: \t 0000:19:00.0\n"
    )
    assert gpu.parse_information(information, index=3) == Gpu(index=3, uuid="GPU-1111", model="NVIDIA H200")
    assert gpu.parse_information("", index=0) is None


def test_throttling_is_named_and_idling_is_none() -> None:
    assert gpu.throttle_names(0x1 | 0x2 | 0x100) == ()
    assert gpu.throttle_names(0x4 | 0x40 | 0x1) == ("sw_power_cap", "hw_thermal_slowdown")


def test_a_stranger_is_told_from_this_process_in_a_container_too() -> None:
    def others(before: set[int], now: list[int], own: int) -> list[int]:
        return [p.pid for p in probe.strangers(before, [Process(pid, "python") for pid in now], own)]

    assert others(set(), [70], own=70) == []
    assert others({5}, [5, 70], own=70) == [5]
    assert others(set(), [70, 99], own=70) == [99]
    # In a container own is a small number, and the device tells the host's.
    assert others(set(), [4242], own=7) == []
    assert others({900}, [900, 4242], own=7) == [900]
    assert others({900}, [900], own=7) == [900]


def test_this_machine_has_a_name_that_a_queue_can_have() -> None:
    found = probe.hardware()
    HardwareRule(name=found.name)
    assert found == probe.hardware()
    assert probe.node().name
    assert probe.other_processes() == () or probe.gpu_present()


def test_the_environment_of_another_interpreter_is_its_own_and_of_none_is_empty(tmp_path: Path) -> None:
    own = probe.environment()
    assert own.python == sys.version.split()[0]
    assert re.match(r"\d+\.\d+", own.torch)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    other = probe.environment(str(bare / "bin/python"))
    assert (other.python, other.torch, other.triton) == (own.python, "", "")
    assert probe.environment(str(tmp_path / "no-python")).python == ""


def test_asking_what_is_there_imports_no_torch(repository: Path) -> None:
    """A context on the device, made only to look at it, would be somebody else's noise."""
    code = "import sys; from perfci.bench import probe; probe.hardware(); probe.node(); probe.environment();"
    code += "assert not {'torch', 'triton', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=repository, check=True, timeout=60)
