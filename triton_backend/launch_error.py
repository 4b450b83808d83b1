"""The one exception of starting a server."""


class LaunchError(RuntimeError):
    """The server cannot start or did not; the message is one sentence for the user."""
