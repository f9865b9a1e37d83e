"""Memory controller counters, dcgm-exporter, and GPUs of other makers: from files and pages made here."""

from __future__ import annotations

import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from profilers.collectors.telemetry import dcgm, uncore
from profilers.collectors.telemetry.cpu import CpuCollector
from profilers.collectors.telemetry.devices import list_devices
from profilers.collectors.telemetry.other_gpus import AMD_NOTE, amd_gpus
from profilers.collectors.telemetry.uncore import Uncore
from tui.cli.devices import chosen_devices
from tui.cli.errors import UsageError

# --- memory controllers ---------------------------------------------------------------------------------------------------


def controller(devices: Path, name: str, kind: int) -> None:
    """One memory controller as the kernel describes it: reads are event 0x04, mask 0x03, 64 bytes a count."""
    for file, text in {
        "type": str(kind),
        "cpumask": "0,18",
        "format/event": "config:0-7",
        "format/umask": "config:8-15",
        "events/cas_count_read": "event=0x04,umask=0x03",
        "events/cas_count_read.scale": "6.103515625e-5",
        "events/cas_count_read.unit": "MiB",
        "events/cas_count_write": "event=0x04,umask=0x0c",
        "events/cas_count_write.scale": "6.103515625e-5",
        "events/cas_count_write.unit": "MiB",
    }.items():
        path = devices / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_bandwidth_is_counts_times_bytes_over_time(tmp_path, monkeypatch):
    for number in range(2):
        controller(tmp_path / "devices", f"uncore_imc_{number}", 10 + number)
    opened: list[tuple[int, int, int, Path]] = []

    def opener(kind: int, config: int, cpu: int) -> int:
        import os

        path = tmp_path / f"counter{len(opened)}"
        opened.append((kind, config, cpu, path))
        path.write_bytes(struct.pack("<Q", 1000))
        return os.open(path, os.O_RDONLY)

    clock = [100.0]
    monkeypatch.setattr(uncore.time, "monotonic", lambda: clock[0])
    counters = Uncore(tmp_path / "devices", opener)
    assert counters.reason == ""
    # Two controllers, two sockets, reads and writes.
    assert sorted({entry[:3] for entry in opened}) == sorted(
        (kind, config, cpu) for kind in (10, 11) for config in (0x0304, 0x0C04) for cpu in (0, 18)
    )
    assert {why for _, _, why in counters.read()} == {"no value yet: it takes two samples"}
    for number, (_, config, _, path) in enumerate(opened):
        assert path.exists(), number
    # 2 s later every counter of reads has 5,000,000 more, of writes 1,000,000.
    import os

    for (_, config, _, path), (_, fd) in zip(opened, counters._open, strict=True):
        path.write_bytes(struct.pack("<Q", 1000 + (5_000_000 if config == 0x0304 else 1_000_000)))
        os.lseek(fd, 0, 0)
    clock[0] += 2.0
    found = {metric: value for metric, value, _ in counters.read()}
    assert found["dram_read_gb_s"] == pytest.approx(4 * 5_000_000 * 64 / 1e9 / 2)
    assert found["dram_write_gb_s"] == pytest.approx(4 * 1_000_000 * 64 / 1e9 / 2)
    counters.close()


def test_why_there_is_no_bandwidth(tmp_path, monkeypatch):
    assert "offers no memory controller counters" in Uncore(tmp_path).reason
    controller(tmp_path, "uncore_imc", 10)
    (tmp_path / "paranoid").write_text("4\n")
    monkeypatch.setattr(uncore, "PARANOID", tmp_path / "paranoid")

    def refused(*_: int) -> int:
        raise PermissionError(13, "Permission denied")

    counters = Uncore(tmp_path, refused)
    assert counters.reason == "not permitted: takes CAP_PERFMON, or kernel.perf_event_paranoid of 0 or less (here 4)"
    assert counters.read() == [(m, None, counters.reason) for m in ("dram_read_gb_s", "dram_write_gb_s")]

    def gone(*_: int) -> int:
        raise OSError(19, "No such device")

    assert Uncore(tmp_path, gone).reason.endswith("No such device")


def test_the_host_says_load_clock_memory_and_why_there_is_no_bandwidth():
    collector = CpuCollector()
    found = {(s.device, s.metric): s for s in collector.sample()}
    collector.close()
    assert found["cpu", "util_pct"].value is not None and found["cpu/0", "util_pct"].unit == "%"
    bandwidth = found["cpu", "dram_read_gb_s"]
    assert bandwidth.source == "perf" and (bandwidth.value is not None or bandwidth.reason)


# --- dcgm-exporter --------------------------------------------------------------------------------------------------------

PAGE = """# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0"} 99
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100"} 0.125
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100"} 0.85
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="1",UUID="GPU-b",device="nvidia1"} 0.5
DCGM_FI_PROF_PCIE_TX_BYTES{gpu="1",UUID="GPU-b",device="nvidia1"} 2097152
DCGM_FI_PROF_PIPE_FP16_ACTIVE{gpu="1",UUID="GPU-b",device="nvidia1"} NaN
DCGM_FI_PROF_PIPE_FP64_ACTIVE{gpu="1",UUID="GPU-b",device="nvidia1"} soon
"""


def test_an_exporters_page_becomes_percent_and_mib():
    collector = dcgm.DcgmCollector("http://localhost", [("cuda:0", "GPU-a"), ("cuda:5", "GPU-b")], lambda _: PAGE)
    found = {(s.device, s.metric): (s.value, s.unit, s.source) for s in collector.sample()}
    assert found == {
        ("cuda:0", "sm_pct"): (12.5, "%", "dcgm"),
        ("cuda:0", "dram_pct"): (85.0, "%", "dcgm"),
        ("cuda:5", "tensor_pct"): (50.0, "%", "dcgm"),
        ("cuda:5", "pcie_tx_mib_s"): (2.0, "MiB/s", "dcgm"),
    }


def test_a_gpu_that_the_exporter_does_not_show_says_so():
    (sample,) = dcgm.DcgmCollector("http://localhost", [("cuda:0", "GPU-z")], lambda _: PAGE).sample()
    assert sample.value is None and "shows no profiling field of this GPU" in sample.reason


@pytest.mark.parametrize("url", ["http://example.com/metrics", "file:///etc/passwd", "https://localhost:1/"])
def test_only_an_exporter_on_this_machine_is_asked(url):
    (sample,) = dcgm.DcgmCollector(url, [("cuda:0", "GPU-a")]).sample()
    assert sample.value is None and "must be an http address on this machine" in sample.reason


def test_a_real_exporter_over_http():
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        found = dcgm.DcgmCollector(url, [("cuda:0", "GPU-a")]).sample()
        server.shutdown()
        thread.join()
    assert [s.value for s in found] == [12.5, 85.0]
    (sample,) = dcgm.DcgmCollector(url, [("cuda:0", "GPU-a")]).sample()
    assert "does not answer" in sample.reason


# --- other makers ---------------------------------------------------------------------------------------------------------


def card(drm: Path, name: str, vendor: str, product: str = "") -> None:
    folder = drm / name / "device"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "device").write_text("0x74a1\n")
    if product:
        (folder / "product_name").write_text(product + "\n")


def test_amd_gpus_are_seen_and_said_to_be_unsupported(tmp_path, monkeypatch):
    drm, kfd = tmp_path / "drm", tmp_path / "kfd"
    card(drm, "card0", "0x10de")
    card(drm, "card1", "0x1002", "AMD Instinct MI300X")
    card(drm, "card2", "0x1002")
    card(drm, "card2-DP-1", "0x1002")
    assert amd_gpus(drm, kfd) == ["AMD Instinct MI300X", "AMD GPU 0x74a1"]
    for number, simds in enumerate((0, 304)):
        (kfd / str(number)).mkdir(parents=True)
        (kfd / str(number) / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
        (kfd / str(number) / "name").write_text("aqua_vanjaram\n")
    assert amd_gpus(tmp_path / "none", kfd) == ["aqua_vanjaram"]
    assert amd_gpus(tmp_path / "none", tmp_path / "none") == []

    monkeypatch.setattr("profilers.collectors.telemetry.devices.amd_gpus", lambda: ["AMD Instinct MI300X"])
    rows = list_devices()
    assert (rows[-1].device, rows[-1].kind, rows[-1].note) == ("amd:0", "amd", AMD_NOTE)
    with pytest.raises(UsageError, match=r"amd:0 \(AMD Instinct MI300X\): AMD GPUs are not supported yet"):
        chosen_devices("amd:0", rows, build="CPU")
    assert chosen_devices("auto", [row for row in rows if row.kind in ("cpu", "amd")], build="CPU")[0].device == "cpu"
