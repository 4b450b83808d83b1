// Counter-based random numbers: Philox4x32-10 by lanes, and exponential variates from its words; knows
// no framework. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once
#include "simd.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dg {

// A 32-bit word in the lower half of each lane; what the upper half holds is never read.
typedef uint64_t Longs __attribute__((vector_size(kLanes * 4)));
constexpr int kLongLanes = kLanes / 2;

DG_INLINE Longs product_of_words(Longs a, uint32_t b) {
#if defined(__AVX512F__)
  return (Longs)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
  return (Longs)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
  return (a & 0xffffffffu) * static_cast<uint64_t>(b);
#endif
}

// The counter becomes the output words. A carry out of a key's lower half is never read either.
DG_INLINE void philox4x32(Longs (&counter)[4], Longs first_key, Longs second_key) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Longs even = product_of_words(counter[0], 0xD2511F53u);
    const Longs odd = product_of_words(counter[2], 0xCD9E8D57u);
    counter[0] = (odd >> 32) ^ counter[1] ^ first_key;
    counter[1] = odd;
    counter[2] = (even >> 32) ^ counter[3] ^ second_key;
    counter[3] = even;
    first_key += 0x9E3779B9u;
    second_key += 0xBB67AE85u;
  }
}

template <int... Lane>
DG_INLINE Words join_words(Longs low, Longs high, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector((Words)low, (Words)high, (2 * Lane)...);
}

// A vector of rows' own parts of key and counter: what plugins.spec's draws hold.
struct RowDraws {
  Longs seed_low[2], seed_high[2], position[2], step[2];

  DG_INLINE void set(int row, uint64_t seed, uint32_t at_position, uint32_t at_step) {
    const int half = row / kLongLanes, lane = row % kLongLanes;
    seed_low[half][lane] = seed & 0xffffffffu;
    seed_high[half][lane] = seed >> 32;
    position[half][lane] = at_position;
    step[half][lane] = at_step;
  }

  // Words of ids 4 * block to 4 * block + 3, each for every row.
  DG_INLINE void words(uint32_t block, uint32_t stream, Words (&out)[4]) const {
    Longs counter[2][4];
    for (int half = 0; half < 2; ++half) {
      counter[half][0] = block - Longs{};
      counter[half][1] = position[half];
      counter[half][2] = step[half];
      counter[half][3] = stream - Longs{};
      philox4x32(counter[half], seed_low[half], seed_high[half]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) out[i] = join_words(counter[0][i], counter[1][i], EveryLane{});
  }
};

// -log(u) for u = ((word >> 8) + 0.5) * 2^-24, within 2 units in the last place for every word. Near u = 1,
// where draws are decided, it is the distance of u to 1 that must be exact: fp32 cannot hold u itself.
DG_INLINE Floats minus_log_uniform(Words word) {
  const Ints odd = (Ints)((word >> 8) * 2 + 1);  // u * 2^25
  const auto upper = odd >= (1 << 24);           // u above one half
  const Floats lower_value = __builtin_convertvector(odd, Floats);
  Ints bits;
  std::memcpy(&bits, &lower_value, sizeof bits);
  const Ints halvings = upper ? Ints{} : 151 - (bits >> 23);
  const Floats significand = as_floats((Words)((bits & 0x007fffff) | 0x3f000000));  // [1/2, 1)
  const Floats above = __builtin_convertvector((1 << 25) - odd, Floats) * 0x1p-25f;
  const Floats d = upper ? above : 1.0f - significand;  // -log(1 - d) = d * series
  Floats series = d * 1.7756370306f - 2.5526239872f;
  series = series * d + 2.0467464924f;
  series = series * d - 0.6334820986f;
  series = series * d + 0.3533571959f;
  series = series * d + 0.1732924283f;
  series = series * d + 0.2521618605f;
  series = series * d + 0.3332453966f;
  series = series * d + 0.5000013709f;
  series = series * d + 1.0f;
  return __builtin_convertvector(halvings, Floats) * 0.693147180559945f + d * series;
}

}  // namespace dg
