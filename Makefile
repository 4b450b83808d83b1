# CHECKPOINT to engine to server; `make demo` shows it all, `make test` proves it.
CHECKPOINT ?= examples/tickets/checkpoint
TARGET ?= cpu
DTYPE ?= float32
RTX_LIMITS ?= --max-step-tokens 512 --max-segments 16
NAME := $(if $(filter examples/tickets/checkpoint,$(CHECKPOINT)),tickets,$(shell basename "$(CHECKPOINT)"))
ENGINE ?= engines/$(NAME)-$(TARGET)-$(DTYPE)
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
TRITONSERVER ?=
PYTHON_BIN := .venv/bin/python
SERVER_FLAG := $(if $(TRITONSERVER),--tritonserver "$(TRITONSERVER)")
SERVE_ENGINE := --engine "$(ENGINE)" $(SERVER_FLAG)

.DEFAULT_GOAL := help
.PHONY: help setup engine serve demo generate test check size parity accuracy bench-read \
	bench-generate bench-scheduler bench-fanout bench-mixed load onnx-parity rtx-engine \
	kernels-check gpu-check gpu-bench profile simulate clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 16
setup: ## the virtual environment, the server binary, the CPU kernels
	@scripts/setup.sh
engine: setup ## compile CHECKPOINT into ENGINE, if it is not up to date
	@$(PYTHON_BIN) -m build_engine --checkpoint "$(CHECKPOINT)" --output "$(ENGINE)" \
		--target "$(TARGET)" --dtype "$(DTYPE)" --if-needed
serve: engine ## serve ENGINE in the foreground on HTTP_PORT, GRPC_PORT and METRICS_PORT
	@$(PYTHON_BIN) -m triton_backend.launch $(SERVE_ENGINE) --http-port $(HTTP_PORT) \
		--grpc-port $(GRPC_PORT) --metrics-port $(METRICS_PORT)
demo: engine ## start a server, ask it a structured read over gRPC and HTTP, stop it
	@$(PYTHON_BIN) -m examples.clients.demo $(SERVE_ENGINE)
generate: engine ## start a server, stream a reply of block diffusion from it, stop it
	@$(PYTHON_BIN) -m examples.clients.demo --generate $(SERVE_ENGINE)
test: check ## checks and every test, the real server included
	@$(PYTHON_BIN) -m pytest
check: setup ## style, types, import directions, sizes
	@$(PYTHON_BIN) -m ruff check .
	@$(PYTHON_BIN) -m mypy
	@PYTHONPATH=. .venv/bin/lint-imports
	@$(MAKE) --no-print-directory size
size: ## files and functions that are too large
	@$(PYTHON_BIN) scripts/size_gate.py
parity: setup ## worst difference from transformers on every path
	@$(PYTHON_BIN) -m benchmarks.parity
onnx-parity: setup ## worst difference of the ONNX graphs in onnxruntime from transformers
	@$(PYTHON_BIN) -m benchmarks.onnx_parity
rtx-engine: setup ## compile CHECKPOINT for RTX GPUs, on any machine, and read the plans back
	@$(PYTHON_BIN) -m build_engine --checkpoint "$(CHECKPOINT)" --target tensorrt-rtx \
		--dtype "$(DTYPE)" --output "engines/$(NAME)-tensorrt-rtx-$(DTYPE)" $(RTX_LIMITS)
kernels-check: setup ## compile the GPU kernels for every target, on any machine, with a table
	@TRITON_CACHE_DIR=.cache/triton $(PYTHON_BIN) -m plugins.gpu.check
gpu-check: ## on an NVIDIA GPU: every kernel against its reference, the model against transformers
	@"$(PYTHON_BIN)" -m benchmarks.gpu check
gpu-bench: ## on an NVIDIA GPU: kernels, reads and generation at the released checkpoint's sizes
	@"$(PYTHON_BIN)" -m benchmarks.gpu bench
accuracy: engine ## held-out accuracy and calibration through a running server
	@$(PYTHON_BIN) -m benchmarks.accuracy $(SERVE_ENGINE)
bench-read: setup ## one read against transformers, with a report
	@$(PYTHON_BIN) -m benchmarks.bench_read
bench-generate: setup ## generation against transformers, with a report
	@$(PYTHON_BIN) -m benchmarks.bench_generate
bench-scheduler: setup ## host time of one execution's decisions, 256 live requests
	@$(PYTHON_BIN) -m benchmarks.bench_scheduler
bench-fanout: setup ## 20 questions about one state, together and apart
	@$(PYTHON_BIN) -m benchmarks.bench_fanout
bench-mixed: setup ## reads beside generations in an open loop, by policy
	@$(PYTHON_BIN) -m benchmarks.bench_mixed
load: engine ## perf_analyzer against a server
	@$(PYTHON_BIN) -m benchmarks.load $(SERVE_ENGINE)
profile: engine ## measure ENGINE's step times on this machine into its profile.json
	@$(PYTHON_BIN) -m triton_backend.profile --engine "$(ENGINE)"
simulate: setup ## serving simulated: budgets, placements, prefill; tables and docs/simulation.md
	@$(PYTHON_BIN) -m triton_backend.simulate --report docs
clean: ## engines, caches and reports; keeps .venv
	@rm -rf engines .cache reports build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
