"""Texts cut to a number of terminal cells."""

from __future__ import annotations

import pytest

from tui.cells import fit_middle, width


@pytest.mark.parametrize(
    ("text", "cells", "shown"),
    [
        ("cutlass gemm bf16 256x128", 25, "cutlass gemm bf16 256x128"),
        ("cutlass gemm bf16 256x128", 30, "cutlass gemm bf16 256x128     "),
        ("cutlass gemm bf16 256x128", 20, "cutlass ge…6 256x128"),
        ("cutlass gemm bf16 256x128", 7, "cutlas…"),
    ],
)
def test_the_middle_is_cut(text: str, cells: int, shown: str) -> None:
    assert fit_middle(text, cells) == shown


def test_wide_signs_keep_the_width() -> None:
    for cells in range(8, 24):
        assert width(fit_middle("核心核心核心 gemm 核心核心", cells)) == cells
