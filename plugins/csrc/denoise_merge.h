// The folds of all splits of the vocabulary merged into a row's results; knows no products and no layout.
#pragma once
#include <cmath>

#include "denoise_tile.h"

namespace dg {

constexpr int64_t kMostSplits = 32;

struct RowResult {
  int32_t argmax, candidate;
  float entropy, log_prob, candidate_log_prob;
  float shares[kMostSplits];  // what a split's sums of weighted values count for in the average
};

// One lane of every split's fold, `stride` folds apart. In order and in double; an equal logit or score
// keeps the earlier split, so the lowest id wins.
inline RowResult merge_folds(const RowFold* folds, int64_t splits, int64_t stride, int lane,
                             double inverse_temperature) {
  int64_t best = 0, drawn = 0;
  for (int64_t s = 1; s < splits; ++s) {
    if (folds[s * stride].largest[lane] > folds[best * stride].largest[lane]) best = s;
  }
  const double largest = folds[best * stride].largest[lane];
  double plain_sum = 0, sum = 0, weighted = 0, highest = 0, factors[kMostSplits];
  for (int64_t s = 0; s < splits; ++s) {
    const RowFold& fold = folds[s * stride];
    const double moved = fold.largest[lane] - largest, shift = moved * inverse_temperature;
    factors[s] = std::exp(shift);
    plain_sum += std::exp(moved) * fold.plain_sum[lane];
    sum += factors[s] * fold.sum[lane];
    weighted += factors[s] * (fold.weighted[lane] + shift * fold.sum[lane]);
    const double score = factors[s] * fold.score[lane];
    if (score > highest) {
      highest = score;
      drawn = s;
    }
  }
  const RowFold& draw = folds[drawn * stride];
  const double distance = (draw.candidate_logit[lane] - largest) * inverse_temperature;
  RowResult result;
  result.argmax = folds[best * stride].argmax[lane];
  result.candidate = draw.candidate[lane];
  result.entropy = static_cast<float>(std::log(sum) - weighted / sum);
  result.log_prob = static_cast<float>(-std::log(plain_sum));
  result.candidate_log_prob = static_cast<float>(distance - std::log(sum));
  for (int64_t s = 0; s < splits; ++s) result.shares[s] = static_cast<float>(factors[s] / sum);
  return result;
}

}  // namespace dg
