// Routed experts: rows sorted by expert, two products with a gelu-tanh gate between, combined row by row.
#include <vector>

#include "elements.h"
#include "gemm.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {
namespace {

// Rows that an expert has on average in a block of rows, at least: fewer, and its weights come from
// memory more often than the products take.
constexpr int64_t kLeastRows = 128;

// The (row, choice) pairs in order of their expert; within an expert in order of row.
struct Grouping {
  std::vector<int64_t> starts;   // [experts + 1]
  std::vector<int64_t> row_of;   // [pairs] row of a place
  std::vector<int64_t> place_of; // [pairs] place of a (row, choice)
  std::vector<int64_t> chosen;   // experts that have rows

  explicit Grouping(const ExpertShape& shape, const int64_t* ids)
      : starts(shape.experts + 1), row_of(shape.rows * shape.choices), place_of(row_of.size()) {
    for (size_t pair = 0; pair < place_of.size(); ++pair) ++starts[ids[pair] + 1];
    for (int64_t e = 0; e < shape.experts; ++e) {
      if (starts[e + 1] > 0) chosen.push_back(e);
      starts[e + 1] += starts[e];
    }
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (size_t pair = 0; pair < place_of.size(); ++pair) {
      place_of[pair] = next[ids[pair]]++;
      row_of[place_of[pair]] = pair / shape.choices;
    }
  }
  int64_t count(int64_t expert) const { return starts[expert + 1] - starts[expert]; }
};

template <class T> class Experts {
  using Unit = UnitOf<T>;

 public:
  Experts(const ExpertShape& shape, const ExpertTensors<T>& tensors)
      : shape_(shape), tensors_(tensors), groups_(shape, tensors.ids),
        hidden_stride_(spread_stride(shape.hidden)), inner_stride_(spread_stride(shape.inner)) {
    static thread_local Workspace gathered, activated, produced;
    const int64_t pairs = shape.rows * shape.choices;
    rows_ = gathered.get<T>(pairs * hidden_stride_);
    inner_ = activated.get<T>(pairs * inner_stride_);
    produced_ = produced.get<float>(pairs * out_stride());
  }

  void run() {
    gather();
    each_panel(gate_panels(), [&](Place here, Place next) { gate_up(here, next); });
    each_panel(out_panels(), [&](Place here, Place next) { down(here, next); });
    combine();
  }

 private:
  struct Place {
    int64_t expert, panel;
  };

  int64_t gate_panels() const { return (shape_.inner + kPanel - 1) / kPanel; }
  int64_t out_panels() const { return (shape_.hidden + kPanel - 1) / kPanel; }
  int64_t out_stride() const { return out_panels() * kPanel; }

  // A packed half is padded to whole panels by itself; a row-major half follows the other directly.
  Weight<Unit> gate_half(int64_t expert, int64_t half) const {
    const int64_t depth = shape_.hidden / kPerUnit<T>;
    const int64_t columns = shape_.packed ? gate_panels() * kPanel : shape_.inner;
    return {units(tensors_.gate_up) + (2 * expert + half) * columns * depth, shape_.inner, depth,
            shape_.packed};
  }
  Weight<Unit> down_weight(int64_t expert) const {
    const int64_t depth = shape_.inner / kPerUnit<T>;
    const int64_t columns = shape_.packed ? out_stride() : shape_.hidden;
    return {units(tensors_.down) + expert * columns * depth, shape_.hidden, depth, shape_.packed};
  }

  // Calls body(here, next) for the panels of every chosen expert; `next` is likely this thread's next.
  template <class Body> void each_panel(int64_t panels, const Body& body) const {
    const auto& chosen = groups_.chosen;
    const int64_t tasks = chosen.size() * panels, threads = at::get_num_threads();
    const auto place = [&](int64_t task) { return Place{chosen[task / panels], task % panels}; };
    parallel_tasks(tasks, [&](int64_t task) {
      body(place(task), place(std::min(task + threads, tasks - 1)));
    });
  }

  void gather() {
    at::parallel_for(0, groups_.row_of.size(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) {
        std::memcpy(rows_ + place * hidden_stride_,
                    tensors_.x + groups_.row_of[place] * shape_.hidden, shape_.hidden * sizeof(T));
      }
    });
  }

  void gate_up(Place here, Place next) const {
    const Weight<Unit> gate = gate_half(here.expert, 0), up = gate_half(here.expert, 1);
    const Unit* next_gate = gate_half(next.expert, 0).at(next.panel);
    const Unit* next_up = gate_half(next.expert, 1).at(next.panel);
    const int64_t start = groups_.starts[here.expert], width = gate.width(here.panel);
    const Rows<Unit> rows = Rows<Unit>{units(rows_), hidden_stride_ / kPerUnit<T>}.from(start);
    float gates[kPanelRows * kPanel] = {}, ups[kPanelRows * kPanel] = {};
    for_row_blocks(groups_.count(here.expert), kPanelRows, [&](int64_t first, int64_t count) {
      gate.multiply(here.panel, rows, first, count, gates, kPanel, next_gate);
      up.multiply(here.panel, rows, first, count, ups, kPanel, next_up);
      for (int64_t i = 0; i < count * kPanel; i += kLanes) {
        store(gates + i, gelu_tanh(load(gates + i)) * load(ups + i));
      }
      T* to = inner_ + (start + first) * inner_stride_ + here.panel * kPanel;
      for (int64_t r = 0; r < count; ++r) from_floats(gates + r * kPanel, to + r * inner_stride_, width);
    });
  }

  void down(Place here, Place next) const {
    const Weight<Unit> weight = down_weight(here.expert);
    const Unit* next_panel = down_weight(next.expert).at(next.panel);
    const int64_t start = groups_.starts[here.expert];
    const Rows<Unit> rows = Rows<Unit>{units(inner_), inner_stride_ / kPerUnit<T>}.from(start);
    for_row_blocks(groups_.count(here.expert), kPanelRows, [&](int64_t first, int64_t count) {
      float* to = produced_ + (start + first) * out_stride() + here.panel * kPanel;
      weight.multiply(here.panel, rows, first, count, to, out_stride(), next_panel);
    });
  }

  void combine() const {
    at::parallel_for(0, shape_.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) combine_row(row);
    });
  }

  // In order of the choices, whatever else is in the batch.
  void combine_row(int64_t row) const {
    const float* weights = tensors_.weights + row * shape_.choices;
    const int64_t* places = groups_.place_of.data() + row * shape_.choices;
    T* out = tensors_.out + row * shape_.hidden;
    for (int64_t h = 0; h < shape_.hidden; h += kLanes) {
      Floats sum = {};
      for (int64_t c = 0; c < shape_.choices; ++c) {
        sum = multiply_add(sum, splat(weights[c]), load(produced_ + places[c] * out_stride() + h));
      }
      float lanes[kLanes];
      store(lanes, sum);
      from_floats(lanes, out + h, std::min<int64_t>(kLanes, shape_.hidden - h));
    }
  }

  const ExpertShape& shape_;
  const ExpertTensors<T>& tensors_;
  const Grouping groups_;
  const int64_t hidden_stride_, inner_stride_;
  T* rows_;          // [pairs, hidden_stride] gathered rows
  T* inner_;         // [pairs, inner_stride] gated activations
  float* produced_;  // [pairs, out_stride] expert outputs, unweighted
};

}  // namespace

// Rows are taken in blocks, so that the workspaces stay small, and near: a row never depends on others.
template <class T> void routed_experts(const ExpertShape& shape, const ExpertTensors<T>& tensors) {
  if (shape.rows == 0) return;
  const int64_t least = kLeastRows * shape.experts / std::max<int64_t>(shape.choices, 1);
  const int64_t blocks = std::max<int64_t>(shape.rows / std::max<int64_t>(least, 1), 1);
  for_row_blocks(shape.rows, (shape.rows + blocks - 1) / blocks, [&](int64_t first, int64_t count) {
    ExpertShape part = shape;
    part.rows = count;
    Experts<T>(part, tensors.from(first, shape)).run();
  });
}

template void routed_experts<float>(const ExpertShape&, const ExpertTensors<float>&);
template void routed_experts<uint16_t>(const ExpertShape&, const ExpertTensors<uint16_t>&);

}  // namespace dg
