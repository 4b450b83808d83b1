"""The `dg` ops as TensorRT plugins of one kernel each; only `registration` touches TensorRT."""
