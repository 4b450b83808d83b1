"""One plugin launched under watch, in the interpreter's process."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from onnx import NodeProto
from torch import Tensor

from plugins.gpu.device import Gpu
from plugins.tensorrt.catalog import PLUGINS
from tests.plugins.gpu.watch import watched
from tests.plugins.tensorrt.execution import run_chain

NO_LIMIT = 2**31 - 1


def run(
    content: bytes, tensors: dict[str, Tensor], gpu: Gpu, tactic: int = 1, unlimited: str = ""
) -> None:
    """The node, with its scalar `unlimited` as if there were no end to what that counts."""
    plugin = PLUGINS[NodeProto.FromString(content).op_type]
    if unlimited:
        assert unlimited in plugin.scalars
        plugin = replace(plugin, scalars={**plugin.scalars, unlimited: NO_LIMIT})
    with patch.dict(PLUGINS, {plugin.name: plugin}), watched():
        run_chain([content], tensors, gpu, tactic)
