"""Serves an engine directory behind Triton: engine directory in, replies out."""
