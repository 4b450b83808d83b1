// The head of a denoising step: blocks of rows one after the other, each over splits of the vocabulary
// that are fixed by its size alone and merged in order, so a row never depends on threads or other rows.
#include <algorithm>

#include "denoise_merge.h"
#include "denoise_split.h"

namespace dg {
namespace {

template <class T> class DenoiseHead {
  using Unit = UnitOf<T>;

 public:
  DenoiseHead(const DenoiseShape& shape, const DenoiseTensors<T>& tensors)
      : shape_(shape), tensors_(tensors), depth_(shape.hidden / kPerUnit<T>),
        stride_(spread_stride(shape.hidden)), tiles_((shape.vocabulary + kTileIds - 1) / kTileIds),
        splits_(std::min(tiles_, kMostSplits)) {
    static thread_local Workspace across, folds, values;
    block_.across = across.get<Unit>(kBlockRows * depth_);
    folds_ = folds.get<RowFold>(splits_ * kVectors);
    values_ = values.get<float>(splits_ * kBlockRows * stride_);
  }

  void run() {
    for (int64_t first = 0; first < shape_.rows; first += kBlockRows) {
      gather(first);
      parallel_tasks(splits_, [&](int64_t split) {
        SplitPass<T> pass(shape_, tensors_.embedding, block_, sums(split));
        pass.run(tiles_ * split / splits_, tiles_ * (split + 1) / splits_);
      });
      at::parallel_for(0, block_.rows, 4, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) finish(row, first + row);
      });
    }
  }

 private:
  SplitSums sums(int64_t split) const {
    return {folds_ + split * kVectors, values_ + split * kBlockRows * stride_, stride_};
  }

  // Absent rows have the last row's parameters.
  void gather(int64_t first) {
    block_.rows = std::min(kBlockRows, shape_.rows - first);
    std::fill_n(block_.across, kBlockRows * depth_, Unit{});
    for (int64_t row = 0; row < kBlockRows; ++row) {
      const int64_t from = first + std::min(row, block_.rows - 1);
      const int64_t* draws = tensors_.draws + from * kDrawFields;
      RowParameters& parameters = block_.parameters[row / kLanes];
      parameters.inverse_temperature[row % kLanes] = 1.0f / tensors_.temperature[from];
      parameters.draws.set(row % kLanes, draws[0], draws[1], draws[2]);
      if (row >= block_.rows) continue;
      const Unit* hidden = units(tensors_.hidden) + from * depth_;
      Unit* to = block_.across + row / kPanel * depth_ * kPanel + row % kPanel;
      for (int64_t k = 0; k < depth_; ++k) to[k * kPanel] = hidden[k];
    }
  }

  void finish(int64_t row, int64_t out) const {
    const int64_t vector = row / kLanes;
    const int lane = row % kLanes;
    const RowResult result = merge_folds(folds_ + vector, splits_, kVectors, lane,
                                         block_.parameters[vector].inverse_temperature[lane]);
    tensors_.argmax[out] = result.argmax;
    tensors_.candidate[out] = result.candidate;
    tensors_.entropy[out] = result.entropy;
    tensors_.log_prob[out] = result.log_prob;
    tensors_.candidate_log_prob[out] = result.candidate_log_prob;
    for (int64_t column = 0; column < shape_.hidden; column += kLanes) {
      Floats average = {};
      for (int64_t split = 0; split < splits_; ++split) {
        average += result.shares[split] * load(sums(split).values + row * stride_ + column);
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
  RowBlock<Unit> block_;
  RowFold* folds_;  // [splits, kVectors]
  float* values_;   // [splits, kBlockRows, stride]
};

}  // namespace

template <class T> void denoise_head(const DenoiseShape& shape, const DenoiseTensors<T>& tensors) {
  if (shape.rows > 0) DenoiseHead<T>(shape, tensors).run();
}

template void denoise_head<float>(const DenoiseShape&, const DenoiseTensors<float>&);
template void denoise_head<uint16_t>(const DenoiseShape&, const DenoiseTensors<uint16_t>&);

}  // namespace dg
