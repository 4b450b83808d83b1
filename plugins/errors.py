"""What goes wrong with the kernels, or with packages that are made of them."""


class PluginError(RuntimeError):
    """They cannot be built, loaded or run; the message is one sentence."""
