"""The file of samples: quantities by what the chip offers, the two clocks, and samples that are none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from pm_maker import BUSY, DRAM, EPOCH, ISSUE, TENSOR, after, sampled, samples_file

from profilers.readers import pm_samples
from profilers.readers.errors import ReadError
from profilers.readers.pm_samples import ROLES

INTERVAL = 10_000
KERNELS = after(("gemm", 120_000, 55.0, 20.0, 80.0), ("add", 70_000, 9.0, 88.0, 0.0))


def written(path: Path, **given):
    """A file of ten samples 10 us apart; ``given`` changes fields."""
    start = [EPOCH + INTERVAL * n for n in range(10)]
    fields = {
        "metrics": [BUSY],
        "asked": INTERVAL,
        "start": start,
        "end": [at + INTERVAL for at in start],
        "values": [[100.0]] * 10,
        "anchors": [(EPOCH, None), (EPOCH + 200_000, None)],
    }
    path.write_bytes(msgspec.json.encode({**fields, **given}))
    return path


def test_quantities_of_the_first_alternative(tmp_path):
    made = sampled(KERNELS, INTERVAL)
    found = pm_samples.read(samples_file(tmp_path / "s.json", made, 0))
    assert len(found) == len(made["start"]) and found.interval_ns == INTERVAL
    np.testing.assert_allclose(found.busy, made["busy"])
    np.testing.assert_allclose(found.dram, made["dram"])
    np.testing.assert_allclose(found.sm, np.maximum(made["issue"], made["tensor"]))
    assert found.notes == ()


def test_alternatives(tmp_path):
    read, write = ROLES["dram"][1]
    metrics = [ROLES["busy"][1][0], read, write, ROLES["issue"][1][0], ROLES["tensor"][1][0]]
    found = pm_samples.read(written(tmp_path / "s.json", metrics=metrics, values=[[99.0, 30.0, 80.0, 12.0, 50.0]] * 10))
    # Reads and writes are added, and cut at the whole.
    assert set(found.dram) == {100.0} and set(found.sm) == {50.0}
    assert set(found.busy) == {99.0} and set(found.tensor) == {50.0}
    # Tensor pipes alone are no SM %.
    found = pm_samples.read(written(tmp_path / "s.json", metrics=[BUSY, TENSOR], values=[[99.0, 30.0]] * 10))
    assert np.isnan(found.sm).all() and np.isnan(found.dram).all()
    found = pm_samples.read(written(tmp_path / "s.json", metrics=[BUSY, ISSUE, DRAM], values=[[9.0, 30.0, None]] * 10))
    assert set(found.sm) == {30.0} and np.isnan(found.dram).all()


def test_ticks_become_time(tmp_path):
    """Times in ticks of a clock of 2.6 GHz are told from the readings of both clocks."""
    ticks = 1_200_294_123_821
    starts = [ticks + 26_000 * n for n in range(1, 11)]
    anchors = [(EPOCH, ticks), (EPOCH + 1_000_000, ticks + 2_600_000)]
    path = written(tmp_path / "s.json", start=starts, end=[at + 26_000 for at in starts], anchors=anchors)
    found = pm_samples.read(path)
    assert found.clock == pm_samples.TICKS and found.interval_ns == 10_000
    np.testing.assert_allclose((found.start - EPOCH).astype(float), [10_000 * n for n in range(1, 11)], atol=1)


def test_which_clock(tmp_path):
    assert pm_samples.read(written(tmp_path / "s.json")).clock == pm_samples.UNIX
    assert pm_samples.read(written(tmp_path / "s.json", anchors=[])).clock == pm_samples.UNKNOWN
    far = [(EPOCH - 10**13, 5), (EPOCH - 10**13 + 10**9, 10**9)]
    assert pm_samples.read(written(tmp_path / "s.json", anchors=far)).clock == pm_samples.UNKNOWN


def test_samples_that_are_none_are_counted(tmp_path):
    start = [0, *(EPOCH + INTERVAL * n for n in range(10)), EPOCH, EPOCH + 15_000, 75_000_000_000_000, EPOCH + 100_000]
    length = [INTERVAL] * 11 + [0, INTERVAL, INTERVAL, 40_000]
    end = [a + b for a, b in zip(start, length, strict=True)]
    path = written(tmp_path / "s.json", start=start, end=end, values=[[1.0]] * 15, full=True)
    found = pm_samples.read(path)
    # Without a begin, without a length, inside others, of another clock, stretched over a gap.
    assert len(found) == 10 and [(note.code, note.count) for note in found.notes] == [("pm_dropped", 5), ("pm_full", 1)]
    assert (np.diff(found.start) == INTERVAL).all()


def test_order_does_not_matter(tmp_path):
    start = [EPOCH + INTERVAL * n for n in (4, 1, 0, 3, 2)]
    values = [[4.0], [1.0], [0.0], [3.0], [2.0]]
    found = pm_samples.read(
        written(tmp_path / "s.json", start=start, end=[at + INTERVAL for at in start], values=values)
    )
    assert found.busy.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"start": [1]}, "1 samples begin, 10 end"),
        ({"values": [[1.0, 2.0]] * 10}, "more or fewer values than the 1 metrics"),
        ({"end": [0] * 10}, "no sample"),
        ({"start": [], "end": [], "values": []}, "no sample"),
        ({"metrics": [DRAM]}, "nothing ties samples to kernels"),
        ({"values": [[None]] * 10}, "nothing ties samples to kernels"),
        ({"metrics": 7}, "not samples that can be read"),
        ({"start": [2**70] * 10}, "s.json"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, given, says):
    with pytest.raises(ReadError) as raised:
        pm_samples.read(written(tmp_path / "s.json", **given))
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_that_is_not_there_or_no_json(tmp_path):
    (tmp_path / "x").write_text("{")
    for name in ("x", "nowhere"):
        with pytest.raises(ReadError, match="not samples that can be read"):
            pm_samples.read(tmp_path / name)
