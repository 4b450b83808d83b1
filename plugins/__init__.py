"""The ops an engine is made of: contract, references, CPU kernels; knows no model or serving."""
