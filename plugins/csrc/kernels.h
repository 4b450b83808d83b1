// The CPU kernels as the ops see them: raw pointers and sizes, validated; T is float or uint16_t (bf16).
#pragma once
#include <cstdint>

namespace dg {

struct LinearShape {
  int64_t rows, depth, columns;
  bool packed;
};
template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, T* out);

struct ExpertShape {
  int64_t rows, choices, experts, hidden, inner;
  bool packed;
};
template <class T> struct ExpertTensors {
  const T* x;              // [rows, hidden]
  const int64_t* ids;      // [rows, choices]
  const float* weights;    // [rows, choices]
  const T* gate_up;        // [experts, 2 * inner, hidden] or panels
  const T* down;           // [experts, hidden, inner] or panels
  T* out;                  // [rows, hidden]

  ExpertTensors from(int64_t row, const ExpertShape& shape) const {
    return {x + row * shape.hidden, ids + row * shape.choices, weights + row * shape.choices, gate_up,
            down, out + row * shape.hidden};
  }
};
template <class T> void routed_experts(const ExpertShape& shape, const ExpertTensors<T>& tensors);

struct LabelShape {
  int64_t rows, hidden, vocabulary, labels;
  float softcap;
};
template <class T> struct LabelTensors {
  const T* hidden;           // [rows, hidden]
  const T* embedding;        // [vocabulary, hidden]
  const int32_t* label_ids;  // [rows, labels], -1 is padding
  float* label_logits;       // [rows, labels]
  float* lse;                // [rows]
  float* entropy;            // [rows]
  int32_t* argmax;           // [rows]
};
template <class T> void label_head(const LabelShape& shape, const LabelTensors<T>& tensors);

constexpr int64_t kDrawFields = 3;  // seed, position, step: plugins.spec.DRAW_FIELDS
struct DenoiseShape {
  int64_t rows, hidden, vocabulary;
  float softcap, scale;  // scale of the soft embedding
};
template <class T> struct DenoiseTensors {
  const T* hidden;            // [rows, hidden]
  const T* embedding;         // [vocabulary, hidden]
  const float* temperature;   // [rows]
  const int64_t* draws;       // [rows, kDrawFields]
  int32_t* argmax;            // [rows]
  int32_t* candidate;         // [rows]
  float* entropy;             // [rows]
  float* log_prob;            // [rows]
  float* candidate_log_prob;  // [rows]
  T* soft;                    // [rows, hidden]
};
// Memory beyond the tensors is bounded by a block of rows and a tile of the vocabulary.
template <class T> void denoise_head(const DenoiseShape& shape, const DenoiseTensors<T>& tensors);

// A row of the segments tensor; the order is plugins.spec's.
struct Segment {
  int32_t first_row, row_count, phase, committed, table_row;
};
constexpr int32_t kDenoise = 1;  // plugins.spec.Phase.DENOISE

struct AttentionShape {
  int64_t rows, query_heads, kv_heads, width;  // width of a head
  int64_t page_size, table_width, segments;
  int64_t window;  // 0: none
};
template <class T> struct AttentionTensors {
  const T* q;                 // [rows, query_heads, width]
  const T* k;                 // [rows, kv_heads, width]
  const T* v;                 // [rows, kv_heads, width]
  T* pool;                    // [pages, 2, page_size, kv_heads, width]
  const int64_t* slots;       // [rows]
  const Segment* segments;    // [segments]
  const int32_t* table;       // [tables, table_width]
  T* out;                     // [rows, query_heads, width]
};
// Writes k and v to their slots, then fills the output rows of every segment.
template <class T>
void paged_attention(const AttentionShape& shape, const AttentionTensors<T>& tensors);

}  // namespace dg
