"""All plugins by name."""

from __future__ import annotations

from plugins.tensorrt import attention, experts, heads
from plugins.tensorrt.plugin import Plugin

PLUGINS: dict[str, Plugin] = {
    plugin.name: plugin for plugin in (*attention.PLUGINS, *experts.PLUGINS, *heads.PLUGINS)
}
