// Argument checks shared by the ops; every message names the argument, its value and the limit.
#pragma once
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace dg {

using at::Tensor;

constexpr int64_t kPanelColumns = 32;

inline int64_t panels_of(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

inline void check_dims(const Tensor& tensor, const char* name, int64_t dims) {
  TORCH_CHECK(tensor.device().is_cpu(), name, " is on ", tensor.device(), "; it must be on the CPU");
  TORCH_CHECK(tensor.dim() == dims, name, " has shape ", tensor.sizes(), "; it must have ", dims,
              " dimensions");
}

inline void check_type(const Tensor& tensor, const char* name, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, name, " is ", tensor.scalar_type(), "; it must be ", type);
}

inline void check_values(const Tensor& tensor, const char* name, int64_t depth) {
  const auto type = tensor.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, name, " is ", type,
              "; it must be Float or BFloat16");
  TORCH_CHECK(type == at::kFloat || depth % 2 == 0, name, " has an odd width ", depth,
              "; BFloat16 needs an even one");
}

inline void check_size(const char* name, int64_t value, const char* limit_name, int64_t limit) {
  TORCH_CHECK(value == limit, name, " is ", value, "; it must equal ", limit_name, " = ", limit);
}

inline Tensor whole(const Tensor& tensor) { return tensor.contiguous(); }

// Stored weights are never copied: a copy of a model's weights per call would go unnoticed.
inline void check_contiguous(const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_contiguous(), name, " has strides ", tensor.strides(),
              "; it must be contiguous");
}

// Hidden rows, the embedding that is their tied head, and the cap of its logits.
inline void check_table(const Tensor& hidden, const Tensor& embedding, double softcap) {
  check_dims(hidden, "hidden", 2);
  check_dims(embedding, "embedding", 2);
  check_values(hidden, "hidden", hidden.size(1));
  check_type(embedding, "embedding", hidden.scalar_type());
  check_contiguous(embedding, "embedding");
  check_size("embedding.size(1)", embedding.size(1), "hidden.size(1)", hidden.size(1));
  TORCH_CHECK(softcap > 0, "softcap is ", softcap, "; it must be above 0");
  TORCH_CHECK(embedding.size(0) > 0, "embedding has no rows; it must have at least one");
}

// Runs kernel(T{}) with the storage type of `values`.
template <class Kernel> void dispatch(const Tensor& values, const Kernel& kernel) {
  if (values.scalar_type() == at::kFloat) {
    kernel(float{});
  } else {
    kernel(uint16_t{});
  }
}

template <class T> T* data(const Tensor& tensor) { return static_cast<T*>(tensor.data_ptr()); }

}  // namespace dg
