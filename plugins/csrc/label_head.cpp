// Soft-capped logits by tiles of the vocabulary, folded to label logits, log-sum-exp, entropy and argmax.
#include <cmath>
#include <limits>
#include <vector>

#include "elements.h"
#include "gemm.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {
namespace {

constexpr int64_t kTile = 256;     // columns; fixed, so sums never depend on threads or rows
constexpr int64_t kRowBlock = 24;  // rows whose logits one task holds at a time

// Of exp(x - largest): the sum, and the sum weighted by (x - largest).
struct TileSums {
  float largest, sum, weighted;
  int32_t argmax;
};

struct Peak {
  float value;
  int32_t column;
};

// The lowest column wins a tie: a lane keeps its first, and the lanes are compared by column.
Peak find_peak(const float* logits) {
  Floats most = load(logits);
  Ints start = {};
  for (int32_t i = kLanes; i < kTile; i += kLanes) {
    const Floats next = load(logits + i);
    start = next > most ? i - Ints{} : start;
    most = larger(next, most);
  }
  Peak peak{largest_lane(most)[0], kTile};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (most[lane] == peak.value) peak.column = std::min(peak.column, start[lane] + lane);
  }
  return peak;
}

// Entries past the vocabulary hold -inf and add nothing.
TileSums fold_tile(const float* logits, int32_t first_id) {
  const Peak peak = find_peak(logits);
  Floats sum = {}, weighted = {};
  for (int64_t i = 0; i < kTile; i += kLanes) {
    const Floats distance = larger(splat(2 * kSmallestExponent), load(logits + i) - peak.value);
    const Floats power = exponential(distance);
    sum += power;
    weighted += power * distance;
  }
  return {peak.value, total(sum)[0], total(weighted)[0], first_id + peak.column};
}

void cap_tile(float* logits, int64_t width, float softcap) {
  const float inverse = 1.0f / softcap;
  for (int64_t i = 0; i < kTile; i += kLanes) {
    store(logits + i, softcap * hyperbolic_tangent(load(logits + i) * inverse));
  }
  for (int64_t i = width; i < kTile; ++i) logits[i] = -std::numeric_limits<float>::infinity();
}

template <class T> class LabelHead {
 public:
  LabelHead(const LabelShape& shape, const LabelTensors<T>& tensors)
      : shape_(shape), tensors_(tensors), tiles_((shape.vocabulary + kTile - 1) / kTile),
        folded_(tiles_ * shape.rows) {}

  void run() {
    std::fill_n(tensors_.label_logits, shape_.rows * shape_.labels,
                -std::numeric_limits<float>::infinity());
    parallel_tasks(tiles_, [&](int64_t tile) { fold(tile); });
    for (int64_t row = 0; row < shape_.rows; ++row) finish(row);
  }

 private:
  void fold(int64_t tile) {
    static thread_local Workspace workspace;
    float* logits = workspace.get<float>(kRowBlock * kTile);
    const int64_t depth = shape_.hidden / kPerUnit<T>;
    const int64_t first_id = tile * kTile;
    const int64_t width = std::min(kTile, shape_.vocabulary - first_id);
    const Rows<UnitOf<T>> rows{units(tensors_.hidden), depth}, weights{units(tensors_.embedding), depth};
    for_row_blocks(shape_.rows, kRowBlock, [&](int64_t first, int64_t count) {
      dot_product(count, rows.from(first), weights.from(first_id), width, depth, logits, kTile);
      for (int64_t r = 0; r < count; ++r) {
        cap_tile(logits + r * kTile, width, shape_.softcap);
        pick_labels(first + r, logits + r * kTile, first_id, width);
        folded_[tile * shape_.rows + first + r] = fold_tile(logits + r * kTile, first_id);
      }
    });
  }

  void pick_labels(int64_t row, const float* logits, int64_t first_id, int64_t width) const {
    for (int64_t i = row * shape_.labels; i < (row + 1) * shape_.labels; ++i) {
      const int64_t column = tensors_.label_ids[i] - first_id;
      if (column >= 0 && column < width) tensors_.label_logits[i] = logits[column];
    }
  }

  // Tiles in order; an equal maximum keeps the earlier tile, so the lowest id wins.
  void finish(int64_t row) const {
    TileSums best = folded_[row];
    for (int64_t tile = 1; tile < tiles_; ++tile) {
      const TileSums& next = folded_[tile * shape_.rows + row];
      if (next.largest > best.largest) best = next;
    }
    double sum = 0, weighted = 0;
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      const TileSums& next = folded_[tile * shape_.rows + row];
      const double shift = double(next.largest) - best.largest, scale = std::exp(shift);
      sum += scale * next.sum;
      weighted += scale * (next.weighted + shift * next.sum);
    }
    tensors_.lse[row] = static_cast<float>(best.largest + std::log(sum));
    tensors_.entropy[row] = static_cast<float>(std::log(sum) - weighted / sum);
    tensors_.argmax[row] = best.argmax;
  }

  const LabelShape& shape_;
  const LabelTensors<T>& tensors_;
  const int64_t tiles_;
  std::vector<TileSums> folded_;  // [tiles, rows]
};

}  // namespace

template <class T> void label_head(const LabelShape& shape, const LabelTensors<T>& tensors) {
  if (shape.rows > 0) LabelHead<T>(shape, tensors).run();
}

template void label_head<float>(const LabelShape&, const LabelTensors<float>&);
template void label_head<uint16_t>(const LabelShape&, const LabelTensors<uint16_t>&);

}  // namespace dg
