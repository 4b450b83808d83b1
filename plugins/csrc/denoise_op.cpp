// The denoise head's op: checks what a row asks for before any row is computed.
#include <cmath>
#include <limits>
#include <tuple>

#include "checks.h"
#include "kernels.h"

namespace dg {
namespace {

constexpr int64_t kWordLimit = int64_t{1} << 32;
constexpr float kLowest = std::numeric_limits<float>::min();  // its inverse is finite

void check_temperature(const Tensor& temperature) {
  for (int64_t row = 0; row < temperature.numel(); ++row) {
    const float value = data<float>(temperature)[row];
    TORCH_CHECK(value >= kLowest && std::isfinite(value), "temperature[", row, "] is ", value,
                "; it must be finite and at least ", kLowest);
  }
}

// A seed is any 64 bits; a position and a step are words of a counter.
void check_draws(const Tensor& draws) {
  for (int64_t row = 0; row < draws.size(0); ++row) {
    for (int64_t field = 1; field < kDrawFields; ++field) {
      const int64_t value = data<int64_t>(draws)[row * kDrawFields + field];
      TORCH_CHECK(value >= 0 && value < kWordLimit, "draws[", row, "][", field, "] is ", value,
                  "; it must be within [0, ", kWordLimit, ")");
    }
  }
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> denoise_head_op(
    const Tensor& hidden, const Tensor& embedding, const Tensor& temperature, const Tensor& draws,
    double softcap, double scale) {
  check_table(hidden, embedding, softcap);
  check_dims(temperature, "temperature", 1);
  check_dims(draws, "draws", 2);
  check_type(temperature, "temperature", at::kFloat);
  check_type(draws, "draws", at::kLong);
  check_size("temperature.size(0)", temperature.size(0), "hidden.size(0)", hidden.size(0));
  check_size("draws.size(0)", draws.size(0), "hidden.size(0)", hidden.size(0));
  check_size("draws.size(1)", draws.size(1), "the fields of a draw", kDrawFields);
  const Tensor rows = whole(hidden), temperatures = whole(temperature), drawn = whole(draws);
  check_temperature(temperatures);
  check_draws(drawn);
  const DenoiseShape shape{rows.size(0), rows.size(1), embedding.size(0), static_cast<float>(softcap),
                           static_cast<float>(scale)};
  const auto ids = [&] { return at::empty({shape.rows}, rows.options().dtype(at::kInt)); };
  const auto floats = [&] { return at::empty({shape.rows}, rows.options().dtype(at::kFloat)); };
  Tensor argmax = ids(), candidate = ids();
  Tensor entropy = floats(), log_prob = floats(), candidate_log_prob = floats();
  Tensor soft = at::empty_like(rows);
  dispatch(rows, [&](auto zero) {
    using T = decltype(zero);
    denoise_head<T>(shape, {data<T>(rows), data<T>(embedding), data<float>(temperatures),
                            data<int64_t>(drawn), data<int32_t>(argmax), data<int32_t>(candidate),
                            data<float>(entropy), data<float>(log_prob), data<float>(candidate_log_prob),
                            data<T>(soft)});
  });
  return {argmax, candidate, entropy, log_prob, candidate_log_prob, soft};
}

}  // namespace dg
