"""The one error a build or an engine load raises for something its user can put right."""


class EngineError(Exception):
    """One sentence naming what is wrong, where, and what would be right."""
