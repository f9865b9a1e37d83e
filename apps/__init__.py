"""The workloads: a catalogue that imports no torch, and builders that do."""
