// Products of a few rows with 32 weight columns, packed or row-major; knows no framework.
// Every output is one sum in an order fixed by the depth alone, so a row never depends on its neighbours.
#pragma once
#include <algorithm>
#include <array>

#include "simd.h"

namespace dg {

// Rows of `Unit`s: stride between rows in units.
template <class Unit> struct Rows {
  const Unit* data;
  int64_t stride;
  DG_INLINE Rows from(int64_t row) const { return {data + row * stride, stride}; }
};

enum class Mode {
  kSet,     // c = a * b
  kAdd,     // c += a * b
  kStream,  // c = a * b, while `ahead` comes from memory, a cache line per step
};
constexpr int64_t kLine = 64;

// c[Count, 32] (+)= a[Count, depth] * b[depth, 32]
template <int Count, Mode kMode, class Unit>
void panel_kernel(Rows<Unit> a, Rows<Unit> b, int64_t depth, float* c, int64_t c_stride,
                  const char* ahead) {
  constexpr bool kAccumulate = kMode == Mode::kAdd;
  for (int column = 0; column < kPanel; column += 2 * kLanes) {
    Floats sum[Count][2];
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r) {
      sum[r][0] = kAccumulate ? load(c + r * c_stride + column) : Floats{};
      sum[r][1] = kAccumulate ? load(c + r * c_stride + column + kLanes) : Floats{};
    }
    const Unit* weights = b.data + column;
    for (int64_t k = 0; k < depth; ++k, weights += b.stride) {
      const Vector<Unit> left = load(weights), right = load(weights + kLanes);
      if constexpr (kMode == Mode::kStream) __builtin_prefetch(ahead + k * kLine, 0, 2);
#pragma GCC unroll 16
      for (int r = 0; r < Count; ++r) {
        const Vector<Unit> x = splat(a.data[r * a.stride + k]);
        sum[r][0] = multiply_add(sum[r][0], x, left);
        sum[r][1] = multiply_add(sum[r][1], x, right);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r) {
      store(c + r * c_stride + column, sum[r][0]);
      store(c + r * c_stride + column + kLanes, sum[r][1]);
    }
  }
}

template <class Unit>
using PanelKernel = void (*)(Rows<Unit>, Rows<Unit>, int64_t, float*, int64_t, const char*);

template <Mode kMode, class Unit, int... Index>
constexpr auto panel_kernels(std::integer_sequence<int, Index...>) {
  return std::array<PanelKernel<Unit>, sizeof...(Index)>{
      panel_kernel<Index + 1, kMode, Unit>...};
}

// At most kPanelRows rows.
template <Mode kMode, class Unit>
DG_INLINE void panel_product(int64_t rows, Rows<Unit> a, Rows<Unit> b, int64_t depth, float* c,
                             int64_t c_stride, const char* ahead = nullptr) {
  static constexpr auto kernels =
      panel_kernels<kMode, Unit>(std::make_integer_sequence<int, kPanelRows>{});
  kernels[rows - 1](a, b, depth, c, c_stride, ahead);
}

constexpr int kDotColumns = kLanes < 8 ? kLanes : 8;

template <class Unit> DG_INLINE Vector<Unit> load_tail(const Unit* from, int64_t count) {
  Vector<Unit> value = {};
  std::memcpy(&value, from, count * sizeof(Unit));
  return value;
}

// c[Count, kDotColumns] = a[Count, depth] * transpose of the weight rows.
template <int Count, class Unit>
DG_INLINE void dot_kernel(Rows<Unit> a, const Unit* const (&weights)[kDotColumns], int64_t depth,
                          float* c, int64_t c_stride) {
  Floats sum[Count][kDotColumns] = {};
  const auto step = [&](auto&& fetch) {
    Vector<Unit> x[Count];
#pragma GCC unroll 4
    for (int r = 0; r < Count; ++r) x[r] = fetch(a.data + r * a.stride);
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      const Vector<Unit> weight = fetch(weights[j]);
#pragma GCC unroll 4
      for (int r = 0; r < Count; ++r) sum[r][j] = multiply_add(sum[r][j], x[r], weight);
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    step([&](const Unit* row) __attribute__((always_inline)) { return load(row + k); });
  }
  if (k < depth) step([&](const Unit* row) { return load_tail(row + k, depth - k); });
#pragma GCC unroll 4
  for (int r = 0; r < Count; ++r) sum_lanes<kDotColumns>(sum[r], c + r * c_stride);
}

// Asks for part `index` of `parts` of the next `bytes`, so that a whole round of parts brings them in.
DG_INLINE void fetch_part(const char* next, int64_t bytes, int64_t index, int64_t parts) {
  const int64_t lines = bytes / kLine;
  for (int64_t line = lines * index / parts; line < lines * (index + 1) / parts; ++line) {
    __builtin_prefetch(next + line * kLine, 0, 2);
  }
}

// c[rows, count] = a * transpose of `count` weight rows; c has room for whole groups of kDotColumns.
template <class Unit>
void dot_product(int64_t rows, Rows<Unit> a, Rows<Unit> weights, int64_t count, int64_t depth,
                 float* c, int64_t c_stride) {
  for (int64_t column = 0; column < count; column += kDotColumns) {
    const Unit* group[kDotColumns];
    for (int j = 0; j < kDotColumns; ++j) {
      group[j] = weights.data + std::min(column + j, count - 1) * weights.stride;
    }
    const char* next = reinterpret_cast<const char*>(group[0] + kDotColumns * weights.stride);
    int64_t row = 0;
    for (; row + kDotRows <= rows; row += kDotRows) {
      fetch_part(next, kDotColumns * depth * sizeof(Unit), row, rows);
      dot_kernel<kDotRows>(a.from(row), group, depth, c + row * c_stride + column, c_stride);
    }
    for (; row < rows; ++row) {
      dot_kernel<1>(a.from(row), group, depth, c + row * c_stride + column, c_stride);
    }
  }
}

// A weight matrix [columns, depth], row-major or in panels [ceil(columns / 32), depth, 32].
template <class Unit> struct Weight {
  const Unit* data;
  int64_t columns;
  int64_t depth;
  bool packed;

  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
  int64_t width(int64_t panel) const { return std::min<int64_t>(kPanel, columns - panel * kPanel); }

  const Unit* at(int64_t panel) const { return data + panel * kPanel * depth; }

  // c[count, 32] = rows [first, first + count) of `a` times one panel, count <= kPanelRows. The first two
  // blocks of rows fetch half each of the panel that is expected `next`.
  DG_INLINE void multiply(int64_t panel, Rows<Unit> a, int64_t first, int64_t count, float* c,
                          int64_t c_stride, const Unit* next) const {
    if (!packed) {
      dot_product(count, a.from(first), Rows<Unit>{at(panel), depth}, width(panel), depth, c, c_stride);
    } else if (next && first <= kPanelRows) {
      const char* ahead = reinterpret_cast<const char*>(next) + (first > 0 ? depth * kLine : 0);
      const Rows<Unit> block{at(panel), kPanel};
      panel_product<Mode::kStream>(count, a.from(first), block, depth, c, c_stride, ahead);
    } else {
      panel_product<Mode::kSet>(count, a.from(first), Rows<Unit>{at(panel), kPanel}, depth, c, c_stride);
    }
  }
};

// Calls body(first, count) for even blocks of at most `limit` rows.
template <class Body>
DG_INLINE void for_row_blocks(int64_t rows, int64_t limit, Body&& body) {
  const int64_t blocks = (rows + limit - 1) / limit;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = rows * block / blocks;
    body(first, rows * (block + 1) / blocks - first);
  }
}

}  // namespace dg
