// The head of a denoising step: like attention over the vocabulary, with the embedding as keys and values.
// Splits of the vocabulary, fixed by its size alone, fold their tiles online and are merged in order.
#include <algorithm>
#include <type_traits>

#include "denoise_merge.h"
#include "elements.h"
#include "gemm.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {
namespace {

constexpr int64_t kTile = 112;      // ids; whole groups of kPanelRows, Philox blocks and vectors
constexpr int64_t kBlockRows = 64;  // rows that pass over the vocabulary together
constexpr int64_t kPowerStride = kTile + 16;
constexpr int64_t kVectors = kBlockRows / kLanes;
constexpr int64_t kPanelVectors = kPanel / kLanes;

// Some ids for some rows of the present block.
struct Tile {
  int64_t first_id, ids, rows;
};

// A thread's memory for one tile.
struct TileMemory {
  float* logits;  // [panels of rows, kTile, kPanel]; later the powers
  float* powers;  // [rows, kPowerStride]
  float* values;  // [kTile, kPanel], a panel of the embedding's columns

  static TileMemory of_thread() {
    static thread_local Workspace workspace;
    float* logits = workspace.get<float>(kBlockRows * (kTile + kPowerStride) + kTile * kPanel);
    float* powers = logits + kBlockRows * kTile;
    return {logits, powers, powers + kBlockRows * kPowerStride};
  }
};

template <class T> class DenoiseHead {
  using Unit = UnitOf<T>;

 public:
  DenoiseHead(const DenoiseShape& shape, const DenoiseTensors<T>& tensors)
      : shape_(shape), tensors_(tensors), depth_(shape.hidden / kPerUnit<T>),
        stride_(spread_stride(shape.hidden)), tiles_((shape.vocabulary + kTile - 1) / kTile),
        splits_(std::min(tiles_, kMostSplits)) {
    static thread_local Workspace across, folds, sums;
    across_ = across.get<Unit>(kBlockRows * depth_);
    folds_ = folds.get<RowFold>(splits_ * kVectors);
    sums_ = sums.get<float>(splits_ * kBlockRows * stride_);
  }

  void run() {
    for (int64_t first = 0; first < shape_.rows; first += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, shape_.rows - first);
      gather(first, rows);
      parallel_tasks(splits_, [&](int64_t split) { fold(split, rows); });
      at::parallel_for(0, rows, 4, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) finish(row, first + row);
      });
    }
  }

 private:
  // Absent rows of the block are zero, with the last row's parameters.
  void gather(int64_t first, int64_t rows) {
    std::fill_n(across_, kBlockRows * depth_, Unit{});
    for (int64_t row = 0; row < kBlockRows; ++row) {
      const int64_t from = first + std::min(row, rows - 1);
      const int64_t* draws = tensors_.draws + from * kDrawFields;
      RowParameters& parameters = parameters_[row / kLanes];
      parameters.inverse_temperature[row % kLanes] = 1.0f / tensors_.temperature[from];
      parameters.draws.set(row % kLanes, draws[0], draws[1], draws[2]);
      if (row >= rows) continue;
      const Unit* hidden = units(tensors_.hidden) + from * depth_;
      Unit* to = across_ + row / kPanel * depth_ * kPanel + row % kPanel;
      for (int64_t k = 0; k < depth_; ++k) to[k * kPanel] = hidden[k];
    }
  }

  void fold(int64_t split, int64_t rows) const {
    const int64_t first_tile = tiles_ * split / splits_, last_tile = tiles_ * (split + 1) / splits_;
    RowFold* folds = folds_ + split * kVectors;
    float* sums = sums_ + split * kBlockRows * stride_;
    std::fill_n(folds, kVectors, RowFold(static_cast<int32_t>(first_tile * kTile)));
    std::fill_n(sums, rows * stride_, 0.0f);
    const TileMemory memory = TileMemory::of_thread();
    for (int64_t index = first_tile; index < last_tile; ++index) {
      const int64_t first_id = index * kTile;
      const Tile tile{first_id, std::min(kTile, shape_.vocabulary - first_id), rows};
      score(tile, memory);
      for (int64_t vector = 0; vector * kLanes < rows; ++vector) {
        rescale_sums(tile, vector, soften(tile, vector, memory, folds[vector]), sums);
      }
      add_values(tile, memory, sums);
    }
  }

  // Each group of ids fetches the next group while it is multiplied.
  void score(const Tile& tile, const TileMemory& memory) const {
    const Rows<Unit> table{units(tensors_.embedding) + tile.first_id * depth_, depth_};
    for_row_blocks(tile.ids, kPanelRows, [&](int64_t first, int64_t count) {
      const Rows<Unit> ids = table.from(first);
      const char* next = reinterpret_cast<const char*>(ids.from(count).data);
      float* to = memory.logits + first * kPanel;
      panel_product<Mode::kStream>(count, ids, Rows<Unit>{across_, kPanel}, depth_, to, kPanel, next);
      for (int64_t row = kPanel; row < tile.rows; row += kPanel) {
        const Rows<Unit> panel{across_ + row * depth_, kPanel};
        panel_product<Mode::kSet>(count, ids, panel, depth_, to + row * kTile, kPanel);
      }
    });
  }

  // Folds the logits of a vector of rows and lays their powers out row by row.
  Floats soften(const Tile& tile, int64_t vector, const TileMemory& memory, RowFold& fold) const {
    float* logits = memory.logits + vector / kPanelVectors * kPanel * kTile + vector % kPanelVectors * kLanes;
    const LogitTile columns{logits, tile.ids, static_cast<int32_t>(tile.first_id)};
    const Floats factor = fold_tile(columns, shape_.softcap, parameters_[vector], fold);
    float* powers = memory.powers + vector * kLanes * kPowerStride;
    for (int64_t i = 0; i < tile.ids; i += kLanes) {
      Floats square[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) square[j] = load(logits + (i + j) * kPanel);
      transpose(square);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(powers + j * kPowerStride + i, square[j]);
    }
    return factor;
  }

  void rescale_sums(const Tile& tile, int64_t vector, Floats factor, float* sums) const {
    for (int64_t row = vector * kLanes; row < std::min((vector + 1) * kLanes, tile.rows); ++row) {
      const float by = factor[row % kLanes];
      if (by == 1.0f) continue;
      float* to = sums + row * stride_;
      for (int64_t i = 0; i < stride_; i += kLanes) store(to + i, load(to + i) * by);
    }
  }

  // In fp32; read in place where the table holds that, whole panel by whole panel.
  Rows<float> value_panel(const Tile& tile, int64_t column, const TileMemory& memory) const {
    const int64_t width = std::min<int64_t>(kPanel, shape_.hidden - column);
    const T* from = tensors_.embedding + tile.first_id * shape_.hidden + column;
    if constexpr (std::is_same_v<T, float>) {
      if (width == kPanel) return {from, shape_.hidden};
    }
    for (int64_t i = 0; i < tile.ids; ++i) {
      to_floats(from + i * shape_.hidden, memory.values + i * kPanel, width);
    }
    return {memory.values, kPanel};
  }

  void add_values(const Tile& tile, const TileMemory& memory, float* sums) const {
    const Rows<float> powers{memory.powers, kPowerStride};
    for (int64_t column = 0; column < shape_.hidden; column += kPanel) {
      const Rows<float> values = value_panel(tile, column, memory);
      for_row_blocks(tile.rows, kPanelRows, [&](int64_t first, int64_t count) {
        float* to = sums + first * stride_ + column;
        panel_product<Mode::kAdd>(count, powers.from(first), values, tile.ids, to, stride_);
      });
    }
  }

  void finish(int64_t row, int64_t out) const {
    const int64_t vector = row / kLanes;
    const int lane = row % kLanes;
    const RowResult result = merge_folds(folds_ + vector, splits_, kVectors, lane,
                                         parameters_[vector].inverse_temperature[lane]);
    tensors_.argmax[out] = result.argmax;
    tensors_.candidate[out] = result.candidate;
    tensors_.entropy[out] = result.entropy;
    tensors_.log_prob[out] = result.log_prob;
    tensors_.candidate_log_prob[out] = result.candidate_log_prob;
    for (int64_t column = 0; column < shape_.hidden; column += kLanes) {
      Floats average = {};
      for (int64_t split = 0; split < splits_; ++split) {
        const float* sums = sums_ + (split * kBlockRows + row) * stride_;
        average += result.shares[split] * load(sums + column);
      }
      float lanes[kLanes];
      store(lanes, average * shape_.scale);
      from_floats(lanes, tensors_.soft + out * shape_.hidden + column,
                  std::min<int64_t>(kLanes, shape_.hidden - column));
    }
  }

  const DenoiseShape& shape_;
  const DenoiseTensors<T>& tensors_;
  const int64_t depth_, stride_, tiles_, splits_;
  RowParameters parameters_[kVectors];
  Unit* across_;    // [panels of rows, depth, kPanel] hidden rows side by side
  RowFold* folds_;  // [splits, kVectors]
  float* sums_;     // [splits, kBlockRows, stride] powers times embedding
};

}  // namespace

template <class T> void denoise_head(const DenoiseShape& shape, const DenoiseTensors<T>& tensors) {
  if (shape.rows > 0) DenoiseHead<T>(shape, tensors).run();
}

template void denoise_head<float>(const DenoiseShape&, const DenoiseTensors<float>&);
template void denoise_head<uint16_t>(const DenoiseShape&, const DenoiseTensors<uint16_t>&);

}  // namespace dg
