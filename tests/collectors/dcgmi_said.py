"""Texts of ``dcgmi`` that several tests share."""

from __future__ import annotations

A, B = "GPU-0000-aaaa", "GPU-0001-aaaa"

DISCOVERY = f"""2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:07:00.0                                         |
|        | Device UUID: {A}                                           |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:0F:00.0                                         |
|        | Device UUID: {B}                                           |
+--------+----------------------------------------------------------------------+
1 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
| 9         |
+-----------+
"""
PROFILE = """+----------------+----------+------------------------------------------------------+
| Group.Subgroup | Field ID | Field Tag                                            |
+----------------+----------+------------------------------------------------------+
| A.1            | 1002     | sm_active                                            |
| A.1            | 1004     | tensor_active                                        |
| B.0            | 1005     | dram_active                                          |
| D.0            | 1009     | pcie_tx_bytes                                        |
| C.0            | 1001     | gr_engine_active                                     |
+----------------+----------+------------------------------------------------------+
"""
FIELDS = (1002, 1004, 1005, 1009)
HEADER = ("#Entity   SMACT        TENSO        DRAMA        PCITX            ", "ID                      ")
ENGINELESS = (
    "Error: unable to establish a connection to the specified host: localhost",
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.",
)
