"""Forty-two broken variants of one real recording (H100, 60 kernels, 307.197 us): each is salvaged, or refused by name.

The recording has 121 operators, 132 runtime calls, one copy and one step; ``WHOLE`` says that all of it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_maker import codes, read_file

from profilers.readers import kineto
from profilers.readers.errors import ReadError
from profilers.tables import Recording

KERNEL_NS = 307_197


def believed(recording: Recording) -> tuple[int, int]:
    """Kernels whose length is believed, and their time."""
    kernels = recording.kernels
    only = kernels[(kernels["kind"] == "kernel") & (kernels["flag"] == "")]
    return len(only), int(only["dur_ns"].sum())


def host(recording: Recording) -> tuple[int, int, int]:
    return len(recording.operators), len(recording.runtime), len(recording.steps)


def text_of(recording: Recording, code: str) -> str:
    return next(one.text for one in recording.notes if one.code == code)


def whole(recording: Recording) -> None:
    assert believed(recording) == (60, KERNEL_NS)
    assert host(recording) == (121, 132, 1)
    assert recording.operators["name"].eq("aten::linear").sum() > 0
    # Most operators were left out of these variants on purpose; the launches were not.
    assert (recording.kernels["launch_ns"] >= 0).all()


def mended(kind: str, near: int) -> Callable[[Recording], None]:
    def test(recording: Recording) -> None:
        whole(recording)
        assert codes(recording) == {"repaired_events": 1}
        assert f"({kind})" in text_of(recording, "repaired_events")
        assert f"near byte {near:,}" in text_of(recording, "repaired_events")

    return test


def noted(**counts: int) -> Callable[[Recording], None]:
    def test(recording: Recording) -> None:
        whole(recording)
        assert codes(recording) == counts

    return test


def flagged(flag: str, count: int, ns: int) -> Callable[[Recording], None]:
    def test(recording: Recording) -> None:
        assert host(recording) == (121, 132, 1)
        assert (recording.kernels["flag"] == flag).sum() == count
        assert believed(recording) == (60 - count, ns)
        assert codes(recording) == {f"flag_{flag}": count}

    return test


def no_ids(recording: Recording) -> None:
    assert believed(recording) == (60, KERNEL_NS)
    assert host(recording) == (121, 132, 1)
    assert codes(recording) == {"unlaunched_kernels": 60}
    assert "no correlation ids" in text_of(recording, "unlaunched_kernels")


def two_devices(recording: Recording) -> None:
    kernels = recording.kernels[recording.kernels["kind"] == "kernel"]
    assert kernels.groupby("device", observed=True)["dur_ns"].sum().to_dict() == {
        "cuda:0": KERNEL_NS,
        "cuda:1": KERNEL_NS,
    }
    assert codes(recording) == {"unlaunched_kernels": 60}
    assert {one.id for one in recording.devices} == {"cuda:0", "cuda:1"}


def absent_device(recording: Recording) -> None:
    whole(recording)
    assert codes(recording) == {"unlisted_devices": 1}
    assert set(recording.kernels["device"].unique()) == {"cuda:0", "cuda:9"}
    assert next(one for one in recording.devices if one.id == "cuda:9").name == "NVIDIA H100 80GB HBM3"


def nanoseconds(recording: Recording) -> None:
    whole(recording)
    assert codes(recording) == {"times_in_ns": 1}
    assert recording.origin.base_ns == 1751410836000000000 + 1419247332972313
    assert recording.steps["dur_ns"].tolist() == [4_426_114]


def big_stream(recording: Recording) -> None:
    whole(recording)
    assert set(recording.kernels.loc[recording.kernels["kind"] == "kernel", "stream"]) == {9156438538392218573}


def cut_gzip(recording: Recording) -> None:
    assert host(recording) == (121, 0, 1)
    assert set(codes(recording)) == {"truncated_gzip", "unclosed", "lost_events", "no_device_activity"}
    assert "could be read" in text_of(recording, "no_device_activity")


def cut_json(recording: Recording) -> None:
    assert believed(recording)[0] == 27
    assert codes(recording) == {"unclosed": 1, "lost_events": 1}
    assert "cut off" in text_of(recording, "lost_events")
    assert "near byte 157,957" in text_of(recording, "lost_events")


def no_kernels(recording: Recording) -> None:
    assert host(recording) == (121, 132, 1)
    assert recording.kernels["kind"].tolist() == ["memcpy"]
    assert codes(recording) == {"no_device_activity": 60}
    assert text_of(recording, "no_device_activity").startswith("60 launches, 0 kernels: CUPTI recorded no GPU activity")


def only_kernels(recording: Recording) -> None:
    assert believed(recording) == (60, KERNEL_NS)
    assert host(recording) == (0, 0, 0)
    assert codes(recording) == {"unlaunched_kernels": 60, "no_operators": 1}


def nameless(recording: Recording) -> None:
    whole(recording)
    assert [one.name for one in recording.devices] == [""]
    assert not set(codes(recording)) - {"unclosed"}


def bad_utf8(recording: Recording) -> None:
    mended("bad UTF-8", 23_868)(recording)
    assert recording.operators["name"].str.startswith("\ufffd\ufffdaten::add").sum() == 1


SALVAGED: dict[str, Callable[[Recording], None]] = {
    "Infinity_bandwidth.json": mended("NaN or infinity", 122_847),
    "NaN_occupancy.json": mended("NaN or infinity", 112_241),
    "all_times_in_ns.json": nanoseconds,
    "array_top_level_object_wrapped.json": noted(),
    "bare_list.json": nameless,
    "bare_list_unclosed.json": nameless,
    "control_char_in_name.json": mended("control character", 108_692),
    "crlf.json": noted(),
    "device_not_in_deviceProperties.json": absent_device,
    "duplicated_kernels.json": noted(duplicate_kernels=60),
    "dur_int64_overflow.json": flagged("overflow", 1, KERNEL_NS - 3_263),
    "external_id_is_correlation.json": noted(),
    "gz_named_json.json": noted(),
    "gz_trailing_garbage.json.gz": noted(trailing_bytes=512),
    "gz_truncated_60pct.json.gz": cut_gzip,
    "gz_two_members.json.gz": noted(),
    "inf_bandwidth.json": mended("NaN or infinity", 122_847),
    "int_above_int64.json": noted(),
    "invalid_utf8_name.json": bad_utf8,
    "json_missing_tail.json": nameless,
    "json_truncated_mid_event.json": cut_json,
    "junk_events.json": noted(lost_events=2, incomplete_events=1),
    "kernels_only.json": only_kernels,
    "kernels_without_args.json": no_ids,
    "kernels_without_ids.json": no_ids,
    "launches_but_no_kernels.json": no_kernels,
    "negative_dur.json": flagged("negative", 3, KERNEL_NS - 3_136 - 3_264 - 1_728),
    "newline_in_name.json": mended("control character", 108_692),
    "no_deviceProperties.json": nameless,
    "one_kernel_overruns_its_stream.json": flagged("overrun", 1, KERNEL_NS - 5_887),
    "plain_named_gz.json.gz": noted(),
    "stream_id_above_2_53.json": big_stream,
    "string_numbers.json": noted(odd_types=329),
    "trailing_comma.json": noted(repaired_metadata=1),
    "ts_zero_events.json": flagged("zero_time", 4, KERNEL_NS - 3_136 - 3_264 - 1_728 - 3_424),
    "two_devices_one_process.json": two_devices,
    "unescaped_backslash.json": mended("unescaped backslash", 108_692),
    "unescaped_quotes_in_name.json": mended("unescaped quote", 108_692),
    "utf16.json": noted(utf16=1),
    "utf8_bom.json": noted(),
}
REFUSED = {
    "empty.json": "empty (0 bytes)",
    "zero_events.json": "holds no events",
}


def test_every_file_has_its_outcome(traces: Path) -> None:
    there = sorted(path.name for path in (traces / "malformed").iterdir())
    assert there == sorted([*SALVAGED, *REFUSED])
    assert len(there) == 42


@pytest.mark.parametrize("name", sorted(SALVAGED))
def test_salvaged(traces: Path, name: str) -> None:
    SALVAGED[name](read_file(traces / "malformed" / name))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(traces: Path, name: str) -> None:
    with pytest.raises(ReadError) as caught:
        kineto.read(traces / "malformed" / name)
    assert REFUSED[name] in str(caught.value)
    assert str(caught.value).startswith(name)
    assert "\n" not in str(caught.value)
