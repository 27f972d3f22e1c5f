from pathlib import Path

from agent_rl.doctor.devices import parse_gpus, read_gpus

TEXT = """\
0, GPU-5f0c9b1e-aaaa, NVIDIA H200, 143771, 0, 570.86.15, 9.0
1, GPU-61aa0000-bbbb, NVIDIA H200, [N/A], 512, 570.86.15, 9.0
some other line
"""


def test_the_lines_of_nvidia_smi_are_read() -> None:
    first, second = parse_gpus(TEXT)
    assert (first.index, first.name, first.memory_mib, first.driver) == (0, "NVIDIA H200", 143771, "570.86.15")
    assert (second.memory_mib, second.used_mib) == (0, 512)


def test_without_the_program_or_with_a_broken_one_there_is_no_gpu(tmp_path: Path) -> None:
    assert read_gpus({"PATH": str(tmp_path)}) == []
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert read_gpus({"PATH": str(tmp_path)}) == []


def test_visible_devices_are_chosen_as_cuda_does(tmp_path: Path) -> None:
    lines = (f"{index}, GPU-{index}b3d6a0e, NVIDIA H100 80GB HBM3, 81559, 3, 580.95.05, 9.0" for index in range(4))
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    (tmp_path / "nvidia-smi").chmod(0o755)
    environ = {"PATH": str(tmp_path)}

    def visible(value: str) -> list[int]:
        return [gpu.index for gpu in read_gpus({**environ, "CUDA_VISIBLE_DEVICES": value})]

    assert len(read_gpus(environ)) == 4
    assert visible("2,0") == [2, 0]
    assert visible("GPU-3b") == [3]
    assert visible("") == []
    assert visible("-1") == []
    assert visible("1,9,2") == [1]
