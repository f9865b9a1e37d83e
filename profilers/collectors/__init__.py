"""Measuring on this machine: profiler windows, device telemetry, hardware counters. torch only inside the worker."""
