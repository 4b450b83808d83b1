"""Experts and heads as ONNX functions of standard ops; knows no model.

onnxscript reads these functions' source, Python never runs them.
"""

from onnxscript import opset23 as op
from onnxscript import script

from plugins.onnx_domain import FLOAT, INT32, INT64, dg


@script(dg, default_opset=op)
def routed_experts(x, expert_ids, expert_weights, gate_up, down):
    """Every expert over every row, weighted by 0 where the row did not choose it."""
    shape = op.Shape(gate_up)
    experts = op.Range(0, op.Gather(shape, 0), 1)
    chosen = op.Unsqueeze(expert_ids, [2]) == op.Unsqueeze(experts, [0, 1])
    each = op.Where(chosen, op.Unsqueeze(expert_weights, [2]), 0.0)
    weights = op.Unsqueeze(op.Transpose(op.ReduceSum(each, [1], keepdims=0)), [2])  # [E, N, 1]
    both = op.MatMul(op.Unsqueeze(x, [0]), op.Transpose(gate_up, perm=[0, 2, 1]))
    gate, up = op.Split(both, num_outputs=2, axis=2)
    inner = op.Gelu(gate, approximate="tanh") * up
    found = op.MatMul(inner, op.Transpose(down, perm=[0, 2, 1]))
    total = op.ReduceSum(op.Cast(found, to=FLOAT) * weights, [0], keepdims=0)
    return op.CastLike(total, x)


@script(dg, default_opset=op)
def capped_logits(hidden, embedding, softcap: float):
    """Soft-capped fp32 logits [R, V]."""
    cap = op.Constant(value_float=softcap)
    table = op.Transpose(op.Cast(embedding, to=FLOAT), perm=[1, 0])
    return cap * op.Tanh(op.MatMul(op.Cast(hidden, to=FLOAT), table) / cap)


@script(dg, default_opset=op)
def log_softmax(logits):
    """Log-probabilities [R, V] and log-sum-exp [R, 1]; finite however far logits lie apart."""
    largest = op.ReduceMax(logits, [1], keepdims=1)
    shifted = logits - largest
    spread = op.Log(op.ReduceSum(op.Exp(shifted), [1], keepdims=1))
    return shifted - spread, largest + spread


@script(dg, default_opset=op)
def entropy_of(log_probs):
    """Entropy [R] in nats."""
    return op.Neg(op.ReduceSum(op.Exp(log_probs) * log_probs, [1], keepdims=0))


@script(dg, default_opset=op)
def label_head(hidden, embedding, label_ids, softcap: float):
    """Label logits, log-sum-exp, entropy and argmax; holds all logits, which kernels never do."""
    logits = dg.capped_logits(hidden, embedding, softcap=softcap)
    log_probs, lse = dg.log_softmax(logits)
    ids = op.Cast(label_ids, to=INT64)
    picked = op.GatherElements(logits, op.Max(ids, 0), axis=1)
    minus_infinity = op.Constant(value_float=float("-inf"))
    labels = op.Where(ids < 0, minus_infinity, picked)
    argmax = op.Cast(op.ArgMax(logits, axis=1, keepdims=0), to=INT32)
    return labels, op.Squeeze(lse, [1]), dg.entropy_of(log_probs), argmax


@script(dg, default_opset=op)
def denoise_head(hidden, embedding, temperature, draws, softcap: float, scale: float):
    """What `plugins.reference.denoise_head` returns, with all logits held."""
    logits = dg.capped_logits(hidden, embedding, softcap=softcap)
    plain, _ = dg.log_softmax(logits)
    log_probs, _ = dg.log_softmax(logits / op.Unsqueeze(temperature, [1]))
    argmax = op.ArgMax(logits, axis=1, keepdims=1)
    noise = dg.exponential(draws, embedding)
    candidate = op.ArgMax(log_probs - op.Log(noise), axis=1, keepdims=1)
    probs = op.CastLike(op.Exp(log_probs), hidden)
    soft = op.Cast(op.MatMul(probs, embedding), to=FLOAT) * op.Constant(value_float=scale)
    return (
        op.Cast(op.Squeeze(argmax, [1]), to=INT32),
        op.Cast(op.Squeeze(candidate, [1]), to=INT32),
        dg.entropy_of(log_probs),
        op.Squeeze(op.GatherElements(plain, argmax, axis=1), [1]),
        op.Squeeze(op.GatherElements(log_probs, candidate, axis=1), [1]),
        op.CastLike(soft, hidden),
    )
