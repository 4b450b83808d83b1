// One tile of logits folded into what a denoising step needs of each row; knows no products and no layout.
// Ids lie below each other and rows in lanes, so a row's sums never meet another row's.
#pragma once
#include <limits>

#include "random.h"

namespace dg {

constexpr uint32_t kStreamCandidate = 0;  // plugins.spec.Stream.CANDIDATE
constexpr int kBlockIds = 4;              // ids that share a Philox block

// What a vector of rows asks for.
struct RowParameters {
  Floats inverse_temperature;
  RowDraws draws;
};

// What a vector of rows has seen so far, of logits l. Sums are relative to `largest`.
struct RowFold {
  Floats largest = splat(-1e30f);  // finite: its distance to itself is zero
  Floats plain_sum = {};           // of exp(l - largest)
  Floats sum = {};                 // of power = exp((l - largest) / temperature)
  Floats weighted = {};            // of power * (l - largest) / temperature
  Floats score = {};               // the largest power / exponential variate
  Floats candidate_logit = {};
  Ints candidate, argmax;

  explicit RowFold(int32_t first_id) : candidate(first_id - Ints{}), argmax(first_id - Ints{}) {}
};

// A tile of `ids` ids from `first_id`, which is a multiple of kBlockIds; kPanel floats between ids.
struct LogitTile {
  float* logits;
  int64_t ids;
  int32_t first_id;

  int64_t padded() const { return (ids + kBlockIds - 1) / kBlockIds * kBlockIds; }
};

// Soft-caps the logits and finds the largest; an id only replaces a lower one by being above it.
DG_INLINE void cap_logits(const LogitTile& tile, float softcap, RowFold& fold) {
  const float inverse = 1.0f / softcap;
  for (int32_t i = 0; i < tile.ids; ++i) {
    float* at = tile.logits + i * kPanel;
    const Floats logit = softcap * hyperbolic_tangent(load(at) * inverse);
    store(at, logit);
    fold.argmax = logit > fold.largest ? tile.first_id + i - Ints{} : fold.argmax;
    fold.largest = larger(logit, fold.largest);
  }
  for (int64_t i = tile.ids; i < tile.padded(); ++i) {
    store(tile.logits + i * kPanel, splat(-std::numeric_limits<float>::infinity()));
  }
}

// Clamped where the power is zero anyway: zero times infinity would be NaN.
DG_INLINE Floats clamped(Floats distance) { return larger(splat(2 * kSmallestExponent), distance); }

// Makes the sums relative to a larger logit; returns the factor for other sums of powers.
DG_INLINE Floats rescale(Floats before, const RowParameters& row, RowFold& fold) {
  const Floats moved = clamped(before - fold.largest);
  const Floats shift = clamped((before - fold.largest) * row.inverse_temperature);
  const Floats factor = exponential(shift);
  fold.plain_sum *= exponential(moved);
  fold.weighted = factor * (fold.weighted + shift * fold.sum);
  fold.sum *= factor;
  fold.score *= factor;
  return factor;
}

// Folds the tile; its logits become powers. Returns the factor for sums over earlier tiles' powers.
DG_INLINE Floats fold_tile(const LogitTile& tile, float softcap, const RowParameters& row,
                           RowFold& kept) {
  RowFold fold = kept;
  cap_logits(tile, softcap, fold);
  const Floats factor = rescale(kept.largest, row, fold);
  Floats plain_sum = {}, sum = {}, weighted = {};
  for (int32_t i = 0; i < tile.ids; i += kBlockIds) {
    Words words[kBlockIds];
    row.draws.words((tile.first_id + i) / kBlockIds, kStreamCandidate, words);
#pragma GCC unroll 4
    for (int32_t j = 0; j < kBlockIds; ++j) {
      float* at = tile.logits + (i + j) * kPanel;
      const Floats logit = load(at);
      const Floats distance = logit - fold.largest;
      const Floats colder = clamped(distance * row.inverse_temperature);
      const Floats power = exponential(colder);
      store(at, power);
      plain_sum += exponential(distance);
      sum += power;
      weighted += power * colder;
      const Floats score = power / minus_log_uniform(words[j]);
      const auto better = score > fold.score;
      fold.score = better ? score : fold.score;
      fold.candidate = better ? tile.first_id + i + j - Ints{} : fold.candidate;
      fold.candidate_logit = better ? logit : fold.candidate_logit;
    }
  }
  fold.plain_sum += plain_sum;
  fold.sum += sum;
  fold.weighted += weighted;
  kept = fold;
  return factor;
}

}  // namespace dg
