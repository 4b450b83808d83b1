// x * transpose(weight), by panels of 32 columns and chunks of rows that stay in the second cache.
#include "elements.h"
#include "gemm.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {
namespace {

constexpr int64_t kChunkBytes = 384 * 1024;
constexpr int64_t kCopyBytes = 4096 * 1024;
constexpr int64_t kCopyRows = 128;  // at least: fewer, and the weights come from memory too often

// Rows per task: as many as the cache holds, fewer where the panels alone would not feed the threads.
int64_t chunk_rows(int64_t rows, int64_t row_bytes, int64_t panels) {
  const int64_t fitting = std::max<int64_t>(kChunkBytes / row_bytes, 4 * kPanelRows);
  const int64_t wanted_tasks = 8 * at::get_num_threads();
  const int64_t chunks = std::max((rows + fitting - 1) / fitting, wanted_tasks / panels);
  const int64_t even = (rows + chunks - 1) / std::max<int64_t>(chunks, 1);
  return (even + kPanelRows - 1) / kPanelRows * kPanelRows;
}

// Whether the rows' own stride would put them all on a few cache sets.
template <class T> bool is_crowded(const LinearShape& shape) {
  return shape.depth * sizeof(T) % 4096 == 0 && shape.rows >= 4;
}

// Copies such rows, further apart.
template <class T> Rows<UnitOf<T>> spread_rows(const LinearShape& shape, const T* x) {
  static thread_local Workspace copy;
  const int64_t units_per_row = shape.depth / kPerUnit<T>;
  if (!is_crowded<T>(shape)) return {units(x), units_per_row};
  const int64_t stride = spread_stride(units_per_row) * kPerUnit<T>;
  T* rows = copy.get<T>(shape.rows * stride);
  at::parallel_for(0, shape.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(rows + r * stride, x + r * shape.depth, shape.depth * sizeof(T));
    }
  });
  return {units(rows), stride / kPerUnit<T>};
}

template <class T>
void multiply_rows(const LinearShape& shape, const T* x, const T* weight, T* out) {
  using Unit = UnitOf<T>;
  const Weight<Unit> matrix{units(weight), shape.columns, shape.depth / kPerUnit<T>, shape.packed};
  const Rows<Unit> rows = spread_rows(shape, x);
  const int64_t panels = matrix.panels();
  const int64_t chunk = chunk_rows(shape.rows, shape.depth * sizeof(T), panels);
  const int64_t chunks = (shape.rows + chunk - 1) / chunk;
  parallel_tasks(chunks * panels, [&](int64_t task) {
    const int64_t panel = task % panels, start = task / panels * chunk;
    const int64_t width = matrix.width(panel), later = panel + at::get_num_threads();
    const Unit* next = later < panels ? matrix.at(later) : nullptr;
    float tile[kPanelRows * kPanel];
    for_row_blocks(std::min(chunk, shape.rows - start), kPanelRows, [&](int64_t first, int64_t count) {
      T* to = out + (start + first) * shape.columns + panel * kPanel;
      matrix.multiply(panel, rows.from(start), first, count, tile, kPanel, next);
      for (int64_t r = 0; r < count; ++r) from_floats(tile + r * kPanel, to + r * shape.columns, width);
    });
  });
}

}  // namespace

// Where rows are copied they are taken in blocks, so that the copy stays small.
template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, T* out) {
  if (shape.rows == 0) return;
  const int64_t fitting = std::max<int64_t>(kCopyBytes / (shape.depth * sizeof(T)), kCopyRows);
  const int64_t limit = is_crowded<T>(shape) ? fitting : shape.rows;
  for_row_blocks(shape.rows, limit, [&](int64_t first, int64_t count) {
    const LinearShape part{count, shape.depth, shape.columns, shape.packed};
    multiply_rows<T>(part, x + first * shape.depth, weight, out + first * shape.columns);
  });
}

template void linear<float>(const LinearShape&, const float*, const float*, float*);
template void linear<uint16_t>(const LinearShape&, const uint16_t*, const uint16_t*, uint16_t*);

}  // namespace dg
