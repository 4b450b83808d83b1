"""Serving in simulated time: the scheduler and KV cache as they serve, a cost model for an engine."""
