"""Compiles a plugin's kernel for one of its plans, with the arguments that TensorRT passes."""

from __future__ import annotations

from plugins.gpu.artifact import Artifact, Signature, compile_kernel
from plugins.gpu.launch_plan import Plan
from plugins.tensorrt.plugin import ELEMENT, Plugin, Setting, Tensor

_POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "int32": "*i32",
    "int64": "*i64",
}


def compile_plugin(plugin: Plugin, plan: Plan, setting: Setting) -> Artifact:
    """PTX whose entry takes the inputs, the scalars and the outputs, nothing else."""
    return compile_kernel(plugin.kernel, signature(plugin, setting.dtype), plan, setting.gpu)


def signature(plugin: Plugin, dtype: str) -> Signature:
    """Types of the kernel's arguments; a kernel may take all inputs, or outputs, as one tuple."""
    pointers: dict[str, str | tuple[str, ...]] = {}
    for name, tensors in (("inputs", plugin.inputs), ("outputs", plugin.outputs)):
        each = {one.name: _pointer(one, dtype) for one in tensors}
        pointers |= {name: tuple(each.values())} if takes_tuple(plugin, name) else each
        if name == "inputs":
            pointers |= dict.fromkeys(plugin.scalars, "i32")
    return pointers


def takes_tuple(plugin: Plugin, name: str) -> bool:
    """Whether the kernel has one argument of this name for all inputs or outputs."""
    return name in plugin.kernel.arg_names


def _pointer(tensor: Tensor, dtype: str) -> str:
    return _POINTERS[dtype if tensor.dtype == ELEMENT else tensor.dtype]
