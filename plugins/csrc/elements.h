// Moves rows between storage (fp32 or bf16) and fp32; knows no framework.
#pragma once
#include "simd.h"

namespace dg {

// How a storage type is multiplied: fp32 by itself, bf16 in pairs along the depth.
template <class T> struct Storage;
template <> struct Storage<float> {
  using Unit = float;
  static constexpr int kPerUnit = 1;
};
template <> struct Storage<uint16_t> {
  using Unit = Pair;
  static constexpr int kPerUnit = 2;
};
template <class T> using UnitOf = typename Storage<T>::Unit;
template <class T> constexpr int kPerUnit = Storage<T>::kPerUnit;

template <class T> DG_INLINE const UnitOf<T>* units(const T* data) {
  return reinterpret_cast<const UnitOf<T>*>(data);
}

DG_INLINE void to_floats(const float* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  for (; i < count; ++i) to[i] = from[i];
}
DG_INLINE void to_floats(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen_bf16(from[i]);
}
DG_INLINE void from_floats(const float* from, float* to, int64_t count) {
  to_floats(from, to, count);
}
DG_INLINE void from_floats(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = round_to_bf16(from[i]);
}

// A row stride that spreads rows over the cache's sets, where a power of two would not.
DG_INLINE int64_t spread_stride(int64_t units) { return (units + 15) / 16 * 16 + 16; }

}  // namespace dg
