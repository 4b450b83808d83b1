// One block of query rows against one tile of keys: scores, online softmax, weighted values; knows no pages or phases.
#pragma once
#include <algorithm>
#include <limits>

#include "elements.h"
#include "gemm.h"
#include "parallel.h"

namespace dg {

class TileBuffers {
 public:
  TileBuffers(Workspace& workspace, int64_t rows, int64_t width)
      : rows_(rows), width_(width), padded_((width + kPanel - 1) / kPanel * kPanel),
        keys_(width >= 256 ? 64 : 128), stride_(padded_ + 16), score_stride_(keys_ + 16) {
    float* next = workspace.get<float>((2 * rows + keys_) * stride_ + keys_ * stride_ +
                                       keys_ * padded_ + rows * score_stride_ + 2 * rows);
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    queries_ = take(rows * stride_);
    sums_ = take(rows * stride_);
    key_rows_ = take(keys_ * stride_);
    values_ = take(keys_ * stride_);
    keys_across_ = take(keys_ * padded_);
    scores_ = take(rows * score_stride_);
    largest_ = take(rows);
    total_ = take(rows);
    std::fill_n(queries_, 2 * rows * stride_, 0.0f);
    std::fill_n(largest_, rows, kNothingSeen);
    std::fill_n(total_, rows, 0.0f);
  }

  int64_t keys() const { return keys_; }
  float* query(int64_t row) { return queries_ + row * stride_; }
  float* key(int64_t index) { return key_rows_ + index * stride_; }
  float* value(int64_t index) { return values_ + index * stride_; }

  void clear_keys() { std::fill_n(key_rows_, 2 * keys_ * stride_, 0.0f); }

  // [keys, width] to panels [keys / 32, width, 32].
  void transpose_keys() {
    for (int64_t key = 0; key < keys_; key += kLanes) {
      for (int64_t column = 0; column < padded_; column += kLanes) {
        Floats square[kLanes];
        for (int i = 0; i < kLanes; ++i) square[i] = load(this->key(key + i) + column);
        transpose(square);
        float* to = keys_across_ + (key / kPanel * padded_ + column) * kPanel + key % kPanel;
        for (int i = 0; i < kLanes; ++i) store(to + i * kPanel, square[i]);
      }
    }
  }

  void score() {
    for (int64_t key = 0; key < keys_; key += kPanel) {
      const Rows<float> panel{keys_across_ + key * padded_, kPanel};
      for_row_blocks(rows_, kPanelRows, [&](int64_t first, int64_t count) {
        panel_product<false>(count, Rows<float>{queries_, stride_}.from(first), panel, width_,
                             scores_ + first * score_stride_ + key, score_stride_);
      });
    }
  }

  // Turns a row's scores into powers of their distance to the largest so far; only [first, last) is seen.
  void soften(int64_t row, int64_t first, int64_t last) {
    float* scores = scores_ + row * score_stride_;
    std::fill(scores, scores + first, -std::numeric_limits<float>::infinity());
    std::fill(scores + std::max(first, last), scores + keys_, -std::numeric_limits<float>::infinity());
    Floats most = splat(largest_[row]);
    for (int64_t i = 0; i < keys_; i += kLanes) most = larger(most, load(scores + i));
    const float largest = largest_lane(most);
    Floats sum = {};
    for (int64_t i = 0; i < keys_; i += kLanes) {
      const Floats power = exponential(load(scores + i) - largest);
      store(scores + i, power);
      sum += power;
    }
    if (largest != largest_[row]) rescale(row, exponential(splat(largest_[row] - largest))[0]);
    largest_[row] = largest;
    total_[row] += total(sum);
  }

  void add_values() {
    for (int64_t column = 0; column < padded_; column += kPanel) {
      const Rows<float> panel{values_ + column, stride_};
      for_row_blocks(rows_, kPanelRows, [&](int64_t first, int64_t count) {
        panel_product<true>(count, Rows<float>{scores_, score_stride_}.from(first), panel, keys_,
                            sums_ + first * stride_ + column, stride_);
      });
    }
  }

  const float* finished(int64_t row) {
    float* sums = sums_ + row * stride_;
    for (int64_t i = 0; i < padded_; i += kLanes) store(sums + i, load(sums + i) / total_[row]);
    return sums;
  }

 private:
  static constexpr float kNothingSeen = -1e30f;  // finite: its distance to itself is zero

  void rescale(int64_t row, float factor) {
    float* sums = sums_ + row * stride_;
    for (int64_t i = 0; i < padded_; i += kLanes) store(sums + i, load(sums + i) * factor);
    total_[row] *= factor;
  }

  int64_t rows_, width_, padded_, keys_, stride_, score_stride_;
  float *queries_, *sums_;       // [rows, stride]
  float *key_rows_, *values_;    // [keys, stride]
  float* keys_across_;           // [keys / 32, padded, 32]
  float* scores_;                // [rows, score_stride]
  float *largest_, *total_;      // [rows]
};

}  // namespace dg
