"""The words of the report's page; its figures are the report's."""

OPENING = """# Simulation

What `make simulate` prints and writes: the scheduler, the KV cache and the prefix cache that serve,
driven by a cost model instead of an engine. **Every figure here is simulated.** The step times are
a public profile of another model (LLaDA-8B on one H100, published with TeDiServe: a floor of 12 ms
up to 256 rows, then about 29 us a row). They say which way of serving comes before which, and by
about how much; they say nothing about how fast DiffusionGemma is on any machine.

Each point is {requests} requests (half in the second table of placements) of Poisson arrivals, the
mean of {seeds} seeds, of gaps and sizes the largest. Lengths are log-normal: ShareGPT prompts of
median 795 tokens and outputs of 596, arXiv prompts of 2827 and outputs of 890. *First canvas* is
the time from arrival to the first finished canvas, *good* counts requests within 30 s, *largest
gap* is the longest time that a request which had begun to denoise was in no execution.

What the literature says and this page finds:
"""

BUDGETS = """
## Budgets of the deficit rule

Block diffusion without a causal context, as in LLaDA: every block of 32 tokens costs a pass over
the whole sequence, which cannot be divided, then 9.5 passes over the block on average. Eight
workers that do everything, `prefill: deficit`. A small budget keeps prompts waiting, a large one
holds blocks up. Near saturation the tail is best in between; below it, the larger the better.
"""

PLACEMENTS = """
## Placements

The same model on eight workers: 8C does everything everywhere, 5P3D computes sequences on five
workers and denoises on three, 5P3C lets what the five cannot take overflow to the three. Keys and
values that are handed over move at 300 GB/s and start to move once they are all there. The hybrid
sends a sequence to one of the three when each of the five has 16384 tokens to do, and nobody
overtakes. Where blocks are denoised apart, no sequence holds them up: their largest gap is a step.

That colocated workers beat the hybrid, or the other way round, depends on load and lengths here as
in the literature; no claim is made about it.
"""

PREFILLS = """
## DiffusionGemma: prompts in chunks, whole, or first

Canvases of 256 over a context that is computed once, one commit of 256 rows a canvas, fused with
the next canvas. A mean of 12 denoising steps a canvas is assumed. Two colocated workers, a budget
of 2048 rows, the long prompts of the arXiv lengths. In chunks, no execution is longer than the
budget's, so no canvas waits for longer than that as long as those under way fit it. Whole prompts
make canvases wait for a prompt, prompts first for all that have come.
"""

GEMMA_PLACEMENTS = """
## DiffusionGemma: placements

Budget 1024, prompts in chunks, ShareGPT lengths. A prompt is computed once a request, in a small
part of the time that its canvases take, so one worker of eight is enough for prompts (1P7D, 1P7C),
and chunks hold canvases up so little that a fleet where everyone does everything loses nothing.
"""

CLOSING = """## What is simulated and what is not

- `Scheduler`, `KvCache`, `PagePool`, `PrefixCache` and all that they are made of are those that
  serve; only the engine (a cost model) and the canvases (done after a drawn number of steps) are
  made up. Tokenising, sending and the host's own time are not simulated. What is preempted is
  computed again.
- A prefill worker lets go of a context's pages when it is handed over; what is under way or waits
  for room is held by nobody. A worker that takes it holds its pages outside the scheduler, beside
  what the scheduler gives the request for its own canvases.
- Routing: the fewest tokens of prompts owed, then the fewest requests; handed-over contexts go
  where the most pages are free.

## An engine's own step times

`make profile` times executions of a built engine here, from 8 rows to its limit: contexts, commits,
canvases, reads, contexts behind others, and mixes of them, for about a minute and a half; then the
copying of pages to host memory and back. It fits curves that never fall (one for the layers by all
rows, one a head by its rows, a price for every pair of a row and a position before its segment),
says by how much they miss the mixes, and writes `profile.json` beside the engine's `config.json`.
A server reads it:

- `step_seconds` in `config.pbtxt` (0 is off) takes the largest token budget whose executions last
  no longer by the profile, as if all of their rows were canvases'.
- With host memory for preempted requests (`host_kv_bytes`), a context is copied there only if
  copying it out and back takes less time than computing it again; without a profile, always.

A profile of another engine is refused; measure again after a rebuild, or on another machine.

## One's own questions

`python -m triton_backend.simulate` plays one setting; `--help` lists the options. With
`--engine DIR` the step times are those that `make profile` measured of an engine on this machine.
`--trace FILE` plays recorded arrivals, one JSON object a line, in order of time:

    {"at": 0.25, "prompt": 812, "output": 300}
    {"at": 0.31, "prompt": 400, "questions": 3, "group": 7, "shared": 256}

`at` is in seconds, `prompt` and `output` in tokens; `questions` makes it a read with as many
canvases; prompts of a `group` begin with `shared` tokens alike; `steps` may list the denoising
steps of each canvas. A million reads (`--workload reads --requests 1000000 --rate 300`) take about
three and a half minutes of one core, a million of the mix about eighteen: an execution takes about
0.1 ms, and a generation as many as it has denoising steps.
"""
