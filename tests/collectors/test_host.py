"""The host's own numbers, and what is written about a machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from profilers.collectors.telemetry import machine
from profilers.collectors.telemetry.cpu import CpuCollector, cpu_name


def test_the_hosts_numbers():
    collector = CpuCollector()
    sum(i * i for i in range(300_000))
    found = collector.sample((os.getpid(), 2**22 + 7))
    by_metric = {(sample.device, sample.metric, sample.pid): sample for sample in found}
    assert 0 <= by_metric["cpu", "util_pct", 0].value <= 100
    assert 0 < by_metric["cpu", "memory_used_gb", 0].value < by_metric["cpu", "memory_total_gb", 0].value
    assert ("cpu/0", "util_pct", 0) in by_metric
    assert by_metric["cpu", "worker_rss_gb", os.getpid()].value > 0.01
    gone = by_metric["cpu", "worker_rss_gb", 2**22 + 7]
    assert gone.value is None and gone.reason == "the process is gone"
    assert ("cpu", "worker_cpu_pct", os.getpid()) not in by_metric
    later = {(s.device, s.metric, s.pid): s for s in collector.sample((os.getpid(),))}
    assert later["cpu", "worker_cpu_pct", os.getpid()].value >= 0
    assert all(sample.value is not None or sample.reason for sample in found)


def test_the_first_look_of_another_thread_says_no_load_instead_of_none():
    collector = CpuCollector()
    with ThreadPoolExecutor(1) as pool:
        first, second = (pool.submit(collector.sample).result() for _ in range(2))
    assert "util_pct" not in {sample.metric for sample in first}
    assert "util_pct" in {sample.metric for sample in second}


def test_a_process_that_has_ended_unseen_is_gone():
    collector = CpuCollector()
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child, child.stdout:
        child.stdout.read()  # its end is closed: it has ended, or is about to
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        (sample,) = [s for s in collector.sample((child.pid,)) if s.pid == child.pid or s.metric == "worker_rss_gb"]
    assert sample.value is None and sample.reason == "the process is gone"


def test_no_core_by_core_where_not_wanted():
    found = CpuCollector(cores=False).sample()
    assert {sample.device for sample in found} == {"cpu"}


def test_machine_says_what_ran_but_not_whose():
    found = machine.describe()
    text = json.dumps(found)
    assert found["cpu"] == cpu_name() and found["cores"] and found["memory_gb"] > 0
    assert found["versions"]["torch"] and found["python"]
    assert found["devices"][-1]["device"] == "cpu"
    host = socket.gethostname()
    assert len(host) < 4 or host not in text
    assert os.path.expanduser("~") in ("/", "") or os.path.expanduser("~") not in text
