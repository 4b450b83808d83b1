"""A recording double of TensorRT's Python API, for tests where the library cannot be installed.

It builds nothing: it checks what it is handed by the rules of the real library's validators, goes
through a plugin's life as a build does, and remembers. Where TensorRT-RTX has the same classes, a
test compares their names with the real ones.
"""
