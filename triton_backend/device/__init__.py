"""The runner of every target but `cpu`, on torch tensors; imported only where it serves."""
