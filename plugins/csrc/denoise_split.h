// One split of the vocabulary for a block of rows: per tile logits, fold and weighted embedding rows, as
// attention does with keys and values that are the same rows; knows no threads and no other split.
#pragma once
#include <algorithm>
#include <type_traits>

#include "denoise_tile.h"
#include "elements.h"
#include "gemm.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {

constexpr int64_t kTileIds = 112;   // whole groups of kPanelRows, Philox blocks and vectors
constexpr int64_t kBlockRows = 64;  // rows that pass over the vocabulary together
constexpr int64_t kVectors = kBlockRows / kLanes;
constexpr int64_t kPanelVectors = kPanel / kLanes;
constexpr int64_t kPowerStride = kTileIds + 16;

template <class Unit> struct RowBlock {
  int64_t rows;
  Unit* across;  // [panels of rows, depth, kPanel] hidden rows side by side; absent ones are zero
  RowParameters parameters[kVectors];
};

// What a split leaves behind.
struct SplitSums {
  RowFold* folds;  // [kVectors]
  float* values;   // [rows, stride] powers times embedding
  int64_t stride;
};

template <class T> class SplitPass {
  using Unit = UnitOf<T>;

 public:
  SplitPass(const DenoiseShape& shape, const T* embedding, const RowBlock<Unit>& block, SplitSums sums)
      : shape_(shape), embedding_(embedding), block_(block), sums_(sums),
        depth_(shape.hidden / kPerUnit<T>) {
    static thread_local Workspace workspace;
    logits_ = workspace.get<float>(kBlockRows * (kTileIds + kPowerStride) + kTileIds * kPanel);
    powers_ = logits_ + kBlockRows * kTileIds;
    columns_ = powers_ + kBlockRows * kPowerStride;
  }

  void run(int64_t first_tile, int64_t last_tile) {
    std::fill_n(sums_.folds, kVectors, RowFold(static_cast<int32_t>(first_tile * kTileIds)));
    std::fill_n(sums_.values, block_.rows * sums_.stride, 0.0f);
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      first_id_ = tile * kTileIds;
      ids_ = std::min(kTileIds, shape_.vocabulary - first_id_);
      score();
      for (int64_t vector = 0; vector * kLanes < block_.rows; ++vector) {
        rescale_values(vector, fold(vector));
        lay_out_powers(vector);
      }
      add_values();
    }
  }

 private:
  // A vector's logits, kPanel floats between ids.
  float* logits(int64_t vector) const {
    return logits_ + vector / kPanelVectors * kPanel * kTileIds + vector % kPanelVectors * kLanes;
  }

  // Each group of ids fetches the next group while it is multiplied.
  void score() const {
    const Rows<Unit> table{units(embedding_) + first_id_ * depth_, depth_};
    for_row_blocks(ids_, kPanelRows, [&](int64_t first, int64_t count) {
      const Rows<Unit> ids = table.from(first);
      const char* next = reinterpret_cast<const char*>(ids.from(count).data);
      float* to = logits_ + first * kPanel;
      const Rows<Unit> panel{block_.across, kPanel};
      panel_product<Mode::kStream>(count, ids, panel, depth_, to, kPanel, next);
      for (int64_t row = kPanel; row < block_.rows; row += kPanel) {
        panel_product<Mode::kSet>(count, ids, panel.from(row / kPanel * depth_), depth_,
                                  to + row * kTileIds, kPanel);
      }
    });
  }

  Floats fold(int64_t vector) const {
    const LogitTile tile{logits(vector), ids_, static_cast<int32_t>(first_id_)};
    return fold_tile(tile, shape_.softcap, block_.parameters[vector], sums_.folds[vector]);
  }

  void rescale_values(int64_t vector, Floats factor) const {
    for (int64_t row = vector * kLanes; row < std::min((vector + 1) * kLanes, block_.rows); ++row) {
      const float by = factor[row % kLanes];
      if (by == 1.0f) continue;
      float* to = sums_.values + row * sums_.stride;
      for (int64_t i = 0; i < sums_.stride; i += kLanes) store(to + i, load(to + i) * by);
    }
  }

  void lay_out_powers(int64_t vector) const {
    const float* from = logits(vector);
    float* to = powers_ + vector * kLanes * kPowerStride;
    for (int64_t i = 0; i < ids_; i += kLanes) {
      Floats square[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) square[j] = load(from + (i + j) * kPanel);
      transpose(square);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(to + j * kPowerStride + i, square[j]);
    }
  }

  void add_values() const {
    const Rows<float> powers{powers_, kPowerStride};
    for (int64_t column = 0; column < shape_.hidden; column += kPanel) {
      const Rows<float> values = value_panel(column);
      for_row_blocks(block_.rows, kPanelRows, [&](int64_t first, int64_t count) {
        float* to = sums_.values + first * sums_.stride + column;
        panel_product<Mode::kAdd>(count, powers.from(first), values, ids_, to, sums_.stride);
      });
    }
  }

  // In fp32; read in place where the embedding is that and has a whole panel.
  Rows<float> value_panel(int64_t column) const {
    const int64_t width = std::min<int64_t>(kPanel, shape_.hidden - column);
    const T* from = embedding_ + first_id_ * shape_.hidden + column;
    if constexpr (std::is_same_v<T, float>) {
      if (width == kPanel) return {from, shape_.hidden};
    }
    for (int64_t i = 0; i < ids_; ++i) {
      to_floats(from + i * shape_.hidden, columns_ + i * kPanel, width);
    }
    return {columns_, kPanel};
  }

  const DenoiseShape& shape_;
  const T* embedding_;
  const RowBlock<Unit>& block_;
  const SplitSums sums_;
  const int64_t depth_;
  int64_t first_id_ = 0, ids_ = 0;  // of the present tile
  float* logits_;   // [panels of rows, kTileIds, kPanel]; later the powers
  float* powers_;   // [rows, kPowerStride]
  float* columns_;  // [kTileIds, kPanel]
};

}  // namespace dg
