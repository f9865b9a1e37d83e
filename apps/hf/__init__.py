"""Workloads from transformers configurations: random weights, random inputs, nothing downloaded."""
