"""Parquet: the frame itself, exact, with what the table is in the file's metadata."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.export.columns import exact

if TYPE_CHECKING:
    import pandas as pd


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as a Parquet file: numbers in their own types, texts as strings, metadata under ``kernelscope.*``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = []
    for position in range(len(frame.columns)):
        values = frame.iloc[:, position]
        arrays.append(
            pa.array(values.to_numpy()) if values.dtype.kind in "iufb" else pa.array(exact(values), pa.string())
        )
    said = {"kernelscope.table": table.name, **{f"kernelscope.{key}": value for key, value in meta.items()}}
    schema = pa.schema(
        [(str(name), array.type) for name, array in zip(frame.columns, arrays, strict=True)],
        metadata={key.encode(): value.encode("utf-8", "backslashreplace") for key, value in said.items()},
    )
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out, compression="zstd")
    return out.getvalue()
