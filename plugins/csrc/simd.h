// Portable vectors of floats and of bf16 pairs, and the few functions on them; knows no framework.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace dg {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kPanelRows = 14;  // 28 accumulators, two weight vectors, one broadcast
constexpr int kDotRows = 3;     // 24 accumulators, eight weight vectors or memory operands
#elif defined(__AVX__)
constexpr int kLanes = 8;
constexpr int kPanelRows = 6;
constexpr int kDotRows = 1;
#else
constexpr int kLanes = 4;
constexpr int kPanelRows = 6;
constexpr int kDotRows = 1;
#endif
constexpr int kPanel = 32;  // plugins.spec.PANEL

#define DG_INLINE inline __attribute__((always_inline))

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));

// Two neighbouring bf16 values; the first sits in the low half.
struct Pair {
  uint32_t bits;
};

template <class Unit> struct VectorOf;
template <> struct VectorOf<float> { using type = Floats; };
template <> struct VectorOf<Pair> { using type = Words; };
template <class Unit> using Vector = typename VectorOf<Unit>::type;

template <class Unit> DG_INLINE Vector<Unit> load(const Unit* from) {
  Vector<Unit> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
DG_INLINE void store(float* to, Floats value) { std::memcpy(to, &value, sizeof value); }
DG_INLINE Floats splat(float value) { return value - Floats{}; }
DG_INLINE Words splat(Pair value) { return value.bits - Words{}; }

DG_INLINE Floats as_floats(Words bits) {
  Floats value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

DG_INLINE Floats multiply_add(Floats sum, Floats a, Floats b) { return sum + a * b; }
DG_INLINE Floats multiply_add(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
  __m512bh x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return (Floats)_mm512_dpbf16_ps((__m512)sum, x, y);
#else
  const Words high = 0xffff0000u - Words{};
  sum = sum + as_floats(a & high) * as_floats(b & high);
  return sum + as_floats(a << 16) * as_floats(b << 16);
#endif
}

DG_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
DG_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

template <int... Lane>
DG_INLINE Floats zip_low(Floats a, Floats b, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(a, b, ((Lane % 2) * kLanes + Lane / 2)...);
}
template <int... Lane>
DG_INLINE Floats zip_high(Floats a, Floats b, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(a, b, ((Lane % 2) * kLanes + (Lane + kLanes) / 2)...);
}
using EveryLane = std::make_integer_sequence<int, kLanes>;

template <int By, int... Lane>
DG_INLINE Floats rotate(Floats value, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(value, value, ((Lane + By) % kLanes)...);
}

template <int Half, int Last> DG_INLINE Floats fold_down_to(Floats value) {
  if constexpr (Half < Last) return value;
  else return fold_down_to<Half / 2, Last>(value + rotate<Half>(value, EveryLane{}));
}

// Sums each of Count vectors over its lanes; always in the same order.
template <int Count> DG_INLINE void sum_lanes(Floats* vectors, float* sums) {
#pragma GCC unroll 8
  for (int half = Count / 2; half >= 1; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      vectors[i] = zip_low(vectors[i], vectors[i + half], EveryLane{}) +
                   zip_high(vectors[i], vectors[i + half], EveryLane{});
    }
  }
  const Floats folded = fold_down_to<kLanes / 2, Count>(vectors[0]);
  std::memcpy(sums, &folded, Count * sizeof(float));
}

// A square of kLanes rows becomes its transpose: log2(kLanes) rounds of perfect shuffles.
DG_INLINE void transpose(Floats (&square)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Floats next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = zip_low(square[i], square[i + kLanes / 2], EveryLane{});
      next[2 * i + 1] = zip_high(square[i], square[i + kLanes / 2], EveryLane{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = next[i];
  }
}

struct PowerParts {
  Floats scale;  // 2^n
  Floats rest;   // exp(r) - 1 with |r| <= ln(2) / 2
};

// exp(x) = scale * (1 + rest), for x within [-87, 88]; Taylor to r^7, below one unit in the last place.
DG_INLINE PowerParts split_exp(Floats x) {
  constexpr float kRound = 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
  const Floats shifted = x * 1.44269504088896341f + kRound;
  const Floats count = shifted - kRound;
  Floats r = x - count * 0.693359375f;
  r = r + count * 2.12194440054690583e-4f;
  Floats rest = r * (1.0f / 5040) + (1.0f / 720);
  rest = rest * r + (1.0f / 120);
  rest = rest * r + (1.0f / 24);
  rest = rest * r + (1.0f / 6);
  rest = rest * r + 0.5f;
  rest = rest * (r * r) + r;
  Ints bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - 0x4b400000 + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return {scale, rest};
}

constexpr float kSmallestExponent = -87.0f;

// Exactly zero below kSmallestExponent, so that a masked score adds nothing.
DG_INLINE Floats exponential(Floats x) {
  const Floats low = splat(kSmallestExponent);
  const PowerParts parts = split_exp(larger(low, smaller(splat(88.0f), x)));
  return x < low ? splat(0.0f) : parts.scale * parts.rest + parts.scale;
}

DG_INLINE Floats hyperbolic_tangent(Floats x) {
  const Floats twice = larger(splat(-40.0f), smaller(splat(40.0f), x + x));
  const PowerParts parts = split_exp(twice);
  const Floats less_one = parts.scale * parts.rest + (parts.scale - 1.0f);
  return less_one / (less_one + 2.0f);
}

// x * sigmoid(2u) equals 0.5 * x * (1 + tanh(u)) without the cancellation.
DG_INLINE Floats gelu_tanh(Floats x) {
  const Floats u = 0.797884560802865f * (x + 0.044715f * x * x * x);
  return x / (1.0f + exponential(-2.0f * u));
}

// Every lane of the result holds the fold of all lanes; always in the same order.
template <int Half = kLanes / 2, class Fold> DG_INLINE Floats fold_lanes(Floats value, Fold fold) {
  value = fold(value, rotate<Half>(value, EveryLane{}));
  if constexpr (Half > 1) return fold_lanes<Half / 2>(value, fold);
  else return value;
}

DG_INLINE Floats largest_lane(Floats value) { return fold_lanes(value, larger); }
DG_INLINE Floats total(Floats value) {
  return fold_lanes(value, [](Floats a, Floats b) { return a + b; });
}

DG_INLINE uint16_t round_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

DG_INLINE float widen_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace dg
