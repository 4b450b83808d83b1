// Products of a few rows with 32 weight columns, packed or row-major; knows no framework.
// Every output element is one sum in an order fixed by the depth alone, so a row's result never depends on its neighbours.
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

// c[Count, 32] (+)= a[Count, depth] * b[depth, 32]
template <int Count, bool kAccumulate, class Unit>
void panel_kernel(Rows<Unit> a, Rows<Unit> b, int64_t depth, float* c, int64_t c_stride) {
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
using PanelKernel = void (*)(Rows<Unit>, Rows<Unit>, int64_t, float*, int64_t);

template <bool kAccumulate, class Unit, int... Index>
constexpr auto panel_kernels(std::integer_sequence<int, Index...>) {
  return std::array<PanelKernel<Unit>, sizeof...(Index)>{
      panel_kernel<Index + 1, kAccumulate, Unit>...};
}

// At most kPanelRows rows.
template <bool kAccumulate, class Unit>
DG_INLINE void panel_product(int64_t rows, Rows<Unit> a, Rows<Unit> b, int64_t depth, float* c,
                             int64_t c_stride) {
  static constexpr auto kernels =
      panel_kernels<kAccumulate, Unit>(std::make_integer_sequence<int, kPanelRows>{});
  kernels[rows - 1](a, b, depth, c, c_stride);
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

// c[rows, count] = a * transpose of `count` weight rows; c has room for whole groups of kDotColumns.
template <class Unit>
void dot_product(int64_t rows, Rows<Unit> a, Rows<Unit> weights, int64_t count, int64_t depth,
                 float* c, int64_t c_stride) {
  for (int64_t column = 0; column < count; column += kDotColumns) {
    const Unit* group[kDotColumns];
    for (int j = 0; j < kDotColumns; ++j) {
      group[j] = weights.data + std::min(column + j, count - 1) * weights.stride;
    }
    int64_t row = 0;
    for (; row + kDotRows <= rows; row += kDotRows) {
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

  // c[rows, 32] = a * one panel of columns, rows <= kPanelRows.
  DG_INLINE void multiply(int64_t panel, int64_t rows, Rows<Unit> a, float* c,
                          int64_t c_stride) const {
    if (packed) {
      const Rows<Unit> block{data + panel * kPanel * depth, kPanel};
      panel_product<false>(rows, a, block, depth, c, c_stride);
    } else {
      const Rows<Unit> block{data + panel * kPanel * depth, depth};
      dot_product(rows, a, block, width(panel), depth, c, c_stride);
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
