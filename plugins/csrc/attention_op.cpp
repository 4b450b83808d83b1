// The attention op: a slot, segment or page table that could reach outside its memory is refused before
// anything is written.
#include <algorithm>
#include <vector>

#include "checks.h"
#include "kernels.h"

namespace dg {
namespace {

constexpr int64_t kPhases = 3;
constexpr int64_t kSegmentFields = sizeof(Segment) / sizeof(int32_t);

struct AttentionArguments {
  const Tensor &q, &k, &v, &pool, &slots, &segments, &table;
};

void check_shapes(const AttentionArguments& a, int64_t window) {
  check_dims(a.q, "q", 3);
  check_dims(a.k, "k", 3);
  check_dims(a.pool, "kv_pool", 5);
  check_dims(a.slots, "slots", 1);
  check_dims(a.segments, "segments", 2);
  check_dims(a.table, "block_table", 2);
  check_size("k.size(0)", a.k.size(0), "q.size(0)", a.q.size(0));
  check_size("k.size(2)", a.k.size(2), "q.size(2)", a.q.size(2));
  TORCH_CHECK(a.v.sizes() == a.k.sizes(), "v has shape ", a.v.sizes(),
              "; it must have that of k, ", a.k.sizes());
  TORCH_CHECK(a.k.size(1) > 0 && a.q.size(1) % a.k.size(1) == 0, "q has ", a.q.size(1),
              " heads; they must be a multiple of the heads of k, ", a.k.size(1));
  check_size("kv_pool.size(1)", a.pool.size(1), "keys and values", 2);
  check_size("kv_pool.size(3)", a.pool.size(3), "k.size(1)", a.k.size(1));
  check_size("kv_pool.size(4)", a.pool.size(4), "k.size(2)", a.k.size(2));
  TORCH_CHECK(a.pool.size(2) > 0, "kv_pool has pages of 0 positions; it must have at least 1");
  check_size("slots.size(0)", a.slots.size(0), "q.size(0)", a.q.size(0));
  check_size("segments.size(1)", a.segments.size(1), "the fields of a segment", kSegmentFields);
  TORCH_CHECK(window >= 0, "window is ", window, "; it must be 0 (none) or more");
}

void check_types(const AttentionArguments& a) {
  check_values(a.q, "q", a.q.size(2));
  check_type(a.k, "k", a.q.scalar_type());
  check_type(a.v, "v", a.q.scalar_type());
  check_type(a.pool, "kv_pool", a.q.scalar_type());
  check_type(a.slots, "slots", at::kLong);
  check_type(a.segments, "segments", at::kInt);
  check_type(a.table, "block_table", at::kInt);
  check_contiguous(a.pool, "kv_pool");
}

void check_slots(const Tensor& slots, int64_t limit) {
  for (int64_t row = 0; row < slots.numel(); ++row) {
    const int64_t slot = data<int64_t>(slots)[row];
    TORCH_CHECK(slot >= -1 && slot < limit, "slots[", row, "] is ", slot,
                "; it must be -1 or within [0, ", limit, ")");
  }
}

// Whether the columns [first, last) of a segment's table row all hold pages of the pool.
void check_pages(const Tensor& table, int64_t segment, int64_t table_row, int64_t first, int64_t last,
                 int64_t pages) {
  if (first >= last) return;
  TORCH_CHECK(last <= table.size(1), "segment ", segment, " reads column ", last - 1,
              " of block_table; it has ", table.size(1));
  const int32_t* row = data<int32_t>(table) + table_row * table.size(1);
  for (int64_t column = first; column < last; ++column) {
    TORCH_CHECK(row[column] >= 0 && row[column] < pages, "block_table[", table_row, "][", column,
                "] is ", row[column], ", read by segment ", segment, "; it must be within [0, ", pages,
                ")");
  }
}

void check_segment(const AttentionArguments& a, int64_t index, const Segment& s, int64_t window) {
  const int64_t rows = a.q.size(0), page = a.pool.size(2), pages = a.pool.size(0);
  TORCH_CHECK(s.first_row >= 0 && s.first_row + int64_t(s.row_count) <= rows, "segment ", index,
              " covers rows ", s.first_row, " + ", s.row_count, "; there are ", rows);
  TORCH_CHECK(s.phase >= 0 && s.phase < kPhases, "segment ", index, " has phase ", s.phase,
              "; it must be within [0, ", kPhases, ")");
  TORCH_CHECK(s.committed >= 0, "segment ", index, " has committed ", s.committed,
              "; it must be 0 or more");
  TORCH_CHECK(s.table_row >= 0 && s.table_row < a.table.size(0), "segment ", index, " has table_row ",
              s.table_row, "; it must be within [0, ", a.table.size(0), ")");
  const int64_t committed = s.committed, count = s.row_count;
  const int64_t first = window ? std::max<int64_t>(0, committed - window + 1) : 0;
  const int64_t history = (committed + page - 1) / page;
  if (s.phase == kDenoise) {
    if (first < committed) check_pages(a.table, index, s.table_row, first / page, history, pages);
    check_pages(a.table, index, s.table_row, history, history + (count + page - 1) / page, pages);
  } else {
    check_pages(a.table, index, s.table_row, first / page, (committed + count + page - 1) / page, pages);
  }
}

// Checks every segment and zeroes the output rows that none covers.
template <class T> void check_segments(const AttentionArguments& a, int64_t window, const Tensor& out) {
  const int64_t row_size = out.size(1) * out.size(2);
  std::vector<char> covered(out.size(0), 0);
  for (int64_t index = 0; index < a.segments.size(0); ++index) {
    const Segment& segment = data<Segment>(a.segments)[index];
    TORCH_CHECK(segment.row_count >= 0, "segment ", index, " has row_count ", segment.row_count,
                "; it must be 0 or more");
    if (segment.row_count == 0) continue;
    check_segment(a, index, segment, window);
    for (int64_t row = segment.first_row; row < segment.first_row + segment.row_count; ++row) {
      TORCH_CHECK(!covered[row], "segment ", index, " covers row ", row, ", which another one covers");
      covered[row] = 1;
    }
  }
  for (int64_t row = 0; row < out.size(0); ++row) {
    if (!covered[row]) std::fill_n(data<T>(out) + row * row_size, row_size, T(0));
  }
}

}  // namespace

Tensor attention_op(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& kv_pool,
                    const Tensor& slots, const Tensor& segments, const Tensor& block_table,
                    int64_t window) {
  check_shapes({q, k, v, kv_pool, slots, segments, block_table}, window);
  check_types({q, k, v, kv_pool, slots, segments, block_table});
  const Tensor queries = whole(q), keys = whole(k), values = whole(v), places = whole(slots),
               parts = whole(segments), table = whole(block_table);
  check_slots(places, kv_pool.size(0) * kv_pool.size(2));
  Tensor out = at::empty_like(queries);
  const AttentionShape shape{q.size(0),      q.size(1),          k.size(1),     q.size(2),
                             kv_pool.size(2), table.size(1), parts.size(0), window};
  dispatch(q, [&](auto zero) {
    using T = decltype(zero);
    check_segments<T>({queries, keys, values, kv_pool, places, parts, table}, window, out);
    paged_attention<T>(shape, {data<T>(queries), data<T>(keys), data<T>(values), data<T>(kv_pool),
                               data<int64_t>(places), data<Segment>(parts), data<int32_t>(table),
                               data<T>(out)});
  });
  return out;
}

}  // namespace dg
