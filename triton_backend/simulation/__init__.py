"""Serving in simulated time: the scheduler and KV cache that serve, a cost model for an engine."""
