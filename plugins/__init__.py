"""The ops an engine is made of: their contract, plain references and CPU kernels; knows no models, builds or serving."""
