"""Names of runtime calls as recorders write them."""

from __future__ import annotations

import pytest

from profilers.readers.calls import call_kind, call_kinds, plain_name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernel", "launch"),
        ("cudaLaunchKernelExC_v11060", "launch"),
        ("cuLaunchKernelEx", "launch"),
        ("cuLaunchKernel", "launch"),
        ("cudaGraphLaunch_v10000", "launch"),
        ("hipLaunchKernel", "launch"),
        ("hipExtModuleLaunchKernel", "launch"),
        ("hipModuleLaunchKernel", "launch"),
        ("hipGraphLaunch", "launch"),
        ("cudaLaunchCooperativeKernel", "launch"),
        ("cudaLaunchHostFunc", "other"),
        ("cuKernelGetAttribute", "other"),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "other"),
        ("cudaDeviceSynchronize", "sync"),
        ("cudaStreamSynchronize_v3020", "sync"),
        ("cudaStreamWaitEvent_v3020", "sync"),
        ("cuCtxSynchronize", "sync"),
        ("cudaMemcpyAsync_v3020", "copy"),
        ("cudaMemsetAsync", "copy"),
        ("hipMemcpyWithStream", "copy"),
        ("cuMemcpyHtoDAsync_v2", "copy"),
        ("cudaMalloc", "alloc"),
        ("cudaFreeAsync", "alloc"),
        ("hipFree", "alloc"),
        ("cudaHostAlloc", "alloc"),
        ("cudaEventRecord_v3020", "other"),
        ("cudaStreamIsCapturing_v10000", "other"),
        ("", "other"),
    ],
)
def test_kind(name: str, kind: str) -> None:
    assert call_kind(name) == kind
    assert call_kinds([name, name]) == [kind, kind]


def test_version_suffix_is_no_part_of_the_name() -> None:
    assert plain_name("cudaLaunchKernel_v7000") == "cudaLaunchKernel"
    assert plain_name("cuMemcpyHtoDAsync_v2") == "cuMemcpyHtoDAsync_v2"
