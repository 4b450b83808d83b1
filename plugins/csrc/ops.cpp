// The dg:: library, and the ops on rows alone: each checks its arguments, then calls a kernel.
#include "checks.h"
#include "kernels.h"

namespace dg {
namespace {

Tensor linear_op(const Tensor& x, const Tensor& weight, int64_t out_features) {
  check_dims(x, "x", 2);
  const bool packed = weight.dim() == 3;
  check_dims(weight, "weight", packed ? 3 : 2);
  check_values(x, "x", x.size(1));
  check_type(weight, "weight", x.scalar_type());
  check_contiguous(weight, "weight");
  check_size("weight.size(1)", weight.size(1), "x.size(1)", x.size(1));
  if (packed) {
    check_size("weight.size(0)", weight.size(0), "the panels of out_features", panels_of(out_features));
    check_size("weight.size(2)", weight.size(2), "the panel width", kPanelColumns);
  } else {
    check_size("weight.size(0)", weight.size(0), "out_features", out_features);
  }
  const Tensor rows = whole(x);
  Tensor out = at::empty({x.size(0), out_features}, x.options());
  const LinearShape shape{x.size(0), x.size(1), out_features, packed};
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    linear<T>(shape, data<T>(rows), data<T>(weight), data<T>(out));
  });
  return out;
}

ExpertShape expert_shape(const Tensor& x, const Tensor& ids, const Tensor& gate_up, const Tensor& down) {
  const bool packed = gate_up.dim() == 4;
  check_dims(gate_up, "gate_up", packed ? 4 : 3);
  check_dims(down, "down", packed ? 4 : 3);
  const ExpertShape shape{x.size(0), ids.size(1), gate_up.size(0), x.size(1), down.size(2), packed};
  check_size("down.size(0)", down.size(0), "gate_up.size(0)", shape.experts);
  check_size("gate_up.size(2)", gate_up.size(2), "x.size(1)", shape.hidden);
  if (packed) {
    check_size("gate_up.size(1)", gate_up.size(1), "twice the panels of down.size(2)",
               2 * panels_of(shape.inner));
    check_size("down.size(1)", down.size(1), "the panels of x.size(1)", panels_of(shape.hidden));
    check_size("gate_up.size(3)", gate_up.size(3), "the panel width", kPanelColumns);
    check_size("down.size(3)", down.size(3), "the panel width", kPanelColumns);
  } else {
    check_size("gate_up.size(1)", gate_up.size(1), "twice down.size(2)", 2 * shape.inner);
    check_size("down.size(1)", down.size(1), "x.size(1)", shape.hidden);
  }
  return shape;
}

Tensor routed_experts_op(const Tensor& x, const Tensor& expert_ids, const Tensor& expert_weights,
                         const Tensor& gate_up, const Tensor& down) {
  check_dims(x, "x", 2);
  check_dims(expert_ids, "expert_ids", 2);
  check_dims(expert_weights, "expert_weights", 2);
  check_values(x, "x", x.size(1));
  check_type(gate_up, "gate_up", x.scalar_type());
  check_type(down, "down", x.scalar_type());
  check_type(expert_weights, "expert_weights", at::kFloat);
  check_contiguous(gate_up, "gate_up");
  check_contiguous(down, "down");
  const ExpertShape shape = expert_shape(x, expert_ids, gate_up, down);
  check_values(down, "down", shape.inner);
  check_size("expert_ids.size(0)", expert_ids.size(0), "x.size(0)", shape.rows);
  TORCH_CHECK(expert_weights.sizes() == expert_ids.sizes(), "expert_weights has shape ",
              expert_weights.sizes(), "; it must have that of expert_ids, ", expert_ids.sizes());
  const auto id_type = expert_ids.scalar_type();
  TORCH_CHECK(id_type == at::kInt || id_type == at::kLong, "expert_ids is ", id_type,
              "; it must be Int or Long");
  const Tensor rows = whole(x), ids = whole(expert_ids.to(at::kLong)), weights = whole(expert_weights);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = data<int64_t>(ids)[i];
    TORCH_CHECK(id >= 0 && id < shape.experts, "expert_ids holds ", id, "; it must be within [0, ",
                shape.experts, ")");
  }
  Tensor out = at::empty_like(rows);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    routed_experts<T>(shape, {data<T>(rows), data<int64_t>(ids), data<float>(weights), data<T>(gate_up),
                              data<T>(down), data<T>(out)});
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> label_head_op(const Tensor& hidden, const Tensor& embedding,
                                                         const Tensor& label_ids, double softcap) {
  check_table(hidden, embedding, softcap);
  check_dims(label_ids, "label_ids", 2);
  check_type(label_ids, "label_ids", at::kInt);
  check_size("label_ids.size(0)", label_ids.size(0), "hidden.size(0)", hidden.size(0));
  const Tensor rows = whole(hidden), labels = whole(label_ids);
  const LabelShape shape{rows.size(0), rows.size(1), embedding.size(0), labels.size(1),
                         static_cast<float>(softcap)};
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int32_t id = data<int32_t>(labels)[i];
    TORCH_CHECK(id >= -1 && id < shape.vocabulary, "label_ids holds ", id,
                "; it must be -1 or within [0, ", shape.vocabulary, ")");
  }
  const auto floats = rows.options().dtype(at::kFloat);
  Tensor label_logits = at::empty({shape.rows, shape.labels}, floats);
  Tensor lse = at::empty({shape.rows}, floats), entropy = at::empty({shape.rows}, floats);
  Tensor argmax = at::empty({shape.rows}, floats.dtype(at::kInt));
  dispatch(rows, [&](auto zero) {
    using T = decltype(zero);
    label_head<T>(shape, {data<T>(rows), data<T>(embedding), data<int32_t>(labels),
                          data<float>(label_logits), data<float>(lse), data<float>(entropy),
                          data<int32_t>(argmax)});
  });
  return {label_logits, lse, entropy, argmax};
}

}  // namespace

Tensor attention_op(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& kv_pool,
                    const Tensor& slots, const Tensor& segments, const Tensor& block_table,
                    int64_t window);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> denoise_head_op(
    const Tensor& hidden, const Tensor& embedding, const Tensor& temperature, const Tensor& draws,
    double softcap, double scale);

}  // namespace dg

TORCH_LIBRARY(dg, library) {
  library.def("linear(Tensor x, Tensor weight, int out_features) -> Tensor");
  library.def(
      "routed_experts(Tensor x, Tensor expert_ids, Tensor expert_weights, Tensor gate_up, "
      "Tensor down) -> Tensor");
  library.def(
      "label_head(Tensor hidden, Tensor embedding, Tensor label_ids, float softcap) -> "
      "(Tensor label_logits, Tensor lse, Tensor entropy, Tensor argmax)");
  library.def(
      "denoise_head(Tensor hidden, Tensor embedding, Tensor temperature, Tensor draws, float softcap, "
      "float scale) -> (Tensor argmax, Tensor candidate, Tensor entropy, Tensor log_prob, "
      "Tensor candidate_log_prob, Tensor soft)");
  library.def(
      "mixed_mask_paged_attention(Tensor q, Tensor k, Tensor v, Tensor(a!) kv_pool, Tensor slots, "
      "Tensor segments, Tensor block_table, int window) -> Tensor");
}

TORCH_LIBRARY_IMPL(dg, CPU, library) {
  library.impl("linear", dg::linear_op);
  library.impl("routed_experts", dg::routed_experts_op);
  library.impl("label_head", dg::label_head_op);
  library.impl("denoise_head", dg::denoise_head_op);
  library.impl("mixed_mask_paged_attention", dg::attention_op);
}
