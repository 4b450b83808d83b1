"""Turns a DiffusionGemma checkpoint into an engine directory; knows nothing of serving."""
