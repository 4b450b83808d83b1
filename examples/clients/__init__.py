"""Clients that ask a running server for structured reads."""
