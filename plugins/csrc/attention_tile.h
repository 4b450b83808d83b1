// One block of query rows against one tile of keys: scores, online softmax, weighted values; knows no
// pages or phases.
#pragma once
#include <algorithm>
#include <limits>

#include "elements.h"
#include "gemm.h"
#include "parallel.h"

namespace dg {

// Positions [first, last).
struct Span {
  int64_t first, last;
};

class AttentionTile {
 public:
  AttentionTile(Workspace& workspace, int64_t rows, int64_t width)
      : rows_(rows), width_(width), padded_((width + kPanel - 1) / kPanel * kPanel),
        keys_(keys_of(width)), stride_(padded_ + 16), score_stride_(keys_ + 16) {
    float* next = workspace.get<float>(2 * (rows + keys_) * stride_ + keys_ * padded_ +
                                       rows * score_stride_ + 2 * rows * kLanes);
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    queries_ = take(rows * stride_);
    sums_ = take(rows * stride_);
    key_rows_ = take(keys_ * stride_);
    values_ = take(keys_ * stride_);
    keys_across_ = take(keys_ * padded_);
    scores_ = take(rows * score_stride_);
    largest_ = take(rows * kLanes);
    total_ = take(rows * kLanes);
    std::fill_n(sums_, rows * stride_, 0.0f);
    std::fill_n(largest_, rows * kLanes, kNothingSeen);
    std::fill_n(total_, rows * kLanes, 0.0f);
    if (padded_ > width_) std::fill_n(values_, keys_ * stride_, 0.0f);
  }

  // Fewer wide keys, so that a tile stays in the second cache.
  static int64_t keys_of(int64_t width) { return width >= 256 ? 64 : 128; }

  float* query(int64_t row) { return queries_ + row * stride_; }
  float* key(int64_t index) { return key_rows_ + index * stride_; }
  float* value(int64_t index) { return values_ + index * stride_; }

  // The tile's keys and values in `filled` are set by the caller; the rest of their panels becomes zero.
  void begin(Span filled) {
    used_ = {filled.first / kPanel * kPanel, (filled.last + kPanel - 1) / kPanel * kPanel};
    for (int64_t i = used_.first; i < used_.last; ++i) {
      if (i >= filled.first && i < filled.last) continue;
      std::fill_n(key(i), width_, 0.0f);
      std::fill_n(value(i), width_, 0.0f);
    }
  }

  void score() {
    transpose_keys();
    for (int64_t first_key = used_.first; first_key < used_.last; first_key += kPanel) {
      const Rows<float> panel{keys_across_ + first_key * padded_, kPanel};
      for_row_blocks(rows_, kPanelRows, [&](int64_t first, int64_t count) {
        panel_product<Mode::kSet>(count, Rows<float>{queries_, stride_}.from(first), panel, width_,
                             scores_ + first * score_stride_ + first_key, score_stride_);
      });
    }
  }

  // Turns a row's scores into powers of their distance to the largest so far; only `seen` counts.
  void soften(int64_t row, Span seen) {
    float* scores = scores_ + row * score_stride_;
    mask(scores, seen);
    const Floats before = load(largest_ + row * kLanes);
    Floats largest = before;
    for (int64_t i = used_.first; i < used_.last; i += kLanes) {
      largest = larger(largest, load(scores + i));
    }
    largest = largest_lane(largest);
    if (largest[0] != before[0]) rescale(row, exponential(before - largest));
    Floats sum = load(total_ + row * kLanes);
    for (int64_t i = used_.first; i < used_.last; i += kLanes) {
      const Floats power = exponential(load(scores + i) - largest);
      store(scores + i, power);
      sum += power;
    }
    store(largest_ + row * kLanes, largest);
    store(total_ + row * kLanes, sum);
  }

  void add_values() {
    for (int64_t column = 0; column < padded_; column += kPanel) {
      const Rows<float> panel{values_ + used_.first * stride_ + column, stride_};
      const Rows<float> powers{scores_ + used_.first, score_stride_};
      for_row_blocks(rows_, kPanelRows, [&](int64_t first, int64_t count) {
        panel_product<Mode::kAdd>(count, powers.from(first), panel, used_.last - used_.first,
                            sums_ + first * stride_ + column, stride_);
      });
    }
  }

  const float* finished(int64_t row) {
    float* sums = sums_ + row * stride_;
    const Floats inverse = 1.0f / total(load(total_ + row * kLanes));
    for (int64_t i = 0; i < padded_; i += kLanes) store(sums + i, load(sums + i) * inverse);
    return sums;
  }

 private:
  static constexpr float kNothingSeen = -1e30f;  // finite: its distance to itself is zero
  static constexpr float kUnseen = -std::numeric_limits<float>::infinity();

  // [keys, width] to panels [keys / 32, width, 32].
  void transpose_keys() {
    for (int64_t first = used_.first; first < used_.last; first += kLanes) {
      float* panel = keys_across_ + first / kPanel * kPanel * padded_ + first % kPanel;
      for (int64_t column = 0; column < width_; column += kLanes) {
        Floats square[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) square[i] = load(key(first + i) + column);
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(panel + (column + i) * kPanel, square[i]);
      }
    }
  }

  void mask(float* scores, Span seen) const {
    const int64_t first = std::clamp(seen.first, used_.first, used_.last);
    const int64_t last = std::clamp(seen.last, first, used_.last);
    std::fill(scores + used_.first, scores + first, kUnseen);
    std::fill(scores + last, scores + used_.last, kUnseen);
  }

  void rescale(int64_t row, Floats factor) {
    float* sums = sums_ + row * stride_;
    for (int64_t i = 0; i < padded_; i += kLanes) store(sums + i, load(sums + i) * factor);
    store(total_ + row * kLanes, load(total_ + row * kLanes) * factor);
  }

  int64_t rows_, width_, padded_, keys_, stride_, score_stride_;
  float *queries_, *sums_;     // [rows, stride]
  float *key_rows_, *values_;  // [keys, stride]
  float* keys_across_;         // [keys / 32, padded, 32]
  float* scores_;              // [rows, score_stride]
  float *largest_, *total_;    // [rows, lanes]; the largest repeats, the total is their sum
  Span used_;                  // whole panels of the present tile
};

}  // namespace dg
