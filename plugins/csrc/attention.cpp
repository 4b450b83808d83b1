// Attention over paged keys and values: per key/value head and block of query rows, tiles of keys are
// folded by an online softmax. Tiles lie at fixed positions, so a row's sums depend on nothing but its own segment.
#include <vector>

#include "attention_tile.h"
#include "kernels.h"
#include "parallel.h"

namespace dg {
namespace {

constexpr int64_t kBlockRows = 112;  // query rows (tokens times heads of a group) aimed at per task

// A run of positions with consecutive places in a row of the page table.
struct Run {
  Span span;
  int64_t first_page;  // column of the table where position 0 of this run's numbering lives
  bool causal;         // whether the query's own position bounds it
};

struct Task {
  const Segment* segment;
  int64_t head, first_token, tokens;
};

template <class T> class Attention {
 public:
  Attention(const AttentionShape& shape, const AttentionTensors<T>& tensors)
      : shape_(shape), tensors_(tensors), group_(shape.query_heads / shape.kv_heads) {}

  void run() const {
    write_pages();
    const std::vector<Task> tasks = plan();
    parallel_tasks(tasks.size(), [&](int64_t i) { attend(tasks[i]); });
  }

 private:
  T* page_rows(int64_t page, int64_t which, int64_t offset) const {
    const int64_t row = (page * 2 + which) * shape_.page_size + offset;
    return tensors_.pool + row * shape_.kv_heads * shape_.width;
  }

  void write_pages() const {
    const int64_t row_size = shape_.kv_heads * shape_.width;
    at::parallel_for(0, shape_.rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = tensors_.slots[row];
        if (slot < 0) continue;
        const int64_t page = slot / shape_.page_size, offset = slot % shape_.page_size;
        std::memcpy(page_rows(page, 0, offset), tensors_.k + row * row_size, row_size * sizeof(T));
        std::memcpy(page_rows(page, 1, offset), tensors_.v + row * row_size, row_size * sizeof(T));
      }
    });
  }

  // Later blocks of a causal segment read more keys, so they come first.
  std::vector<Task> plan() const {
    std::vector<Task> tasks;
    const int64_t block = std::max<int64_t>(kBlockRows / group_, 1);
    for (int64_t s = 0; s < shape_.segments; ++s) {
      const Segment& segment = tensors_.segments[s];
      const int64_t blocks = (segment.row_count + block - 1) / block;
      for (int64_t b = blocks - 1; b >= 0; --b) {
        const int64_t first = segment.row_count * b / blocks;
        const int64_t tokens = segment.row_count * (b + 1) / blocks - first;
        for (int64_t head = 0; head < shape_.kv_heads; ++head) {
          tasks.push_back({&segment, head, first, tokens});
        }
      }
    }
    return tasks;
  }

  // What the task's rows may read: the committed history, or for a canvas that and then itself.
  std::vector<Run> runs(const Task& task) const {
    const Segment& segment = *task.segment;
    const int64_t committed = segment.committed;
    if (segment.phase == kDenoise) {
      const int64_t first = shape_.window ? std::max<int64_t>(0, committed - shape_.window + 1) : 0;
      const int64_t scratch = (committed + shape_.page_size - 1) / shape_.page_size;
      return {{{first, committed}, 0, false}, {{0, segment.row_count}, scratch, false}};
    }
    const int64_t position = committed + task.first_token;
    const int64_t first = shape_.window ? std::max<int64_t>(0, position - shape_.window + 1) : 0;
    return {{{first, position + task.tokens}, 0, true}};
  }

  // First element of a token's query heads that share the task's keys.
  int64_t query_offset(const Task& task, int64_t token) const {
    const int64_t row = task.segment->first_row + task.first_token + token;
    return (row * shape_.query_heads + task.head * group_) * shape_.width;
  }

  void attend(const Task& task) const {
    static thread_local Workspace workspace;
    AttentionTile tile(workspace, task.tokens * group_, shape_.width);
    for (int64_t row = 0; row < task.tokens * group_; ++row) {
      const int64_t from = query_offset(task, row / group_) + row % group_ * shape_.width;
      to_floats(tensors_.q + from, tile.query(row), shape_.width);
    }
    const int64_t keys = AttentionTile::keys_of(shape_.width);
    for (const Run& run : runs(task)) {
      for (int64_t start = run.span.first / keys * keys; start < run.span.last; start += keys) {
        const Span filled{std::max(start, run.span.first), std::min(start + keys, run.span.last)};
        gather(task, run, start, filled, tile);
        fold(task, run, start, tile);
      }
    }
    for (int64_t row = 0; row < task.tokens * group_; ++row) {
      const int64_t to = query_offset(task, row / group_) + row % group_ * shape_.width;
      from_floats(tile.finished(row), tensors_.out + to, shape_.width);
    }
  }

  // Reads the filled positions and nothing else of their pages.
  void gather(const Task& task, const Run& run, int64_t start, Span filled, AttentionTile& tile) const {
    const int32_t* table = tensors_.table + task.segment->table_row * shape_.table_width;
    const int64_t row_size = shape_.kv_heads * shape_.width;
    tile.begin({filled.first - start, filled.last - start});
    for (int64_t position = filled.first; position < filled.last;) {
      const int64_t offset = position % shape_.page_size;
      const int64_t page = table[run.first_page + position / shape_.page_size];
      const int64_t count = std::min(filled.last - position, shape_.page_size - offset);
      const T* keys = page_rows(page, 0, offset) + task.head * shape_.width;
      const T* values = page_rows(page, 1, offset) + task.head * shape_.width;
      for (int64_t i = 0; i < count; ++i, ++position) {
        to_floats(keys + i * row_size, tile.key(position - start), shape_.width);
        to_floats(values + i * row_size, tile.value(position - start), shape_.width);
      }
    }
  }

  void fold(const Task& task, const Run& run, int64_t start, AttentionTile& tile) const {
    tile.score();
    for (int64_t row = 0; row < task.tokens * group_; ++row) {
      Span seen = run.span;
      if (run.causal) {
        seen.last = task.segment->committed + task.first_token + row / group_ + 1;
        seen.first = shape_.window ? std::max<int64_t>(0, seen.last - shape_.window) : 0;
      }
      tile.soften(row, {seen.first - start, seen.last - start});
    }
    tile.add_values();
  }

  const AttentionShape& shape_;
  const AttentionTensors<T>& tensors_;
  const int64_t group_;
};

}  // namespace

template <class T>
void paged_attention(const AttentionShape& shape, const AttentionTensors<T>& tensors) {
  Attention<T>(shape, tensors).run();
}

template void paged_attention<float>(const AttentionShape&, const AttentionTensors<float>&);
template void paged_attention<uint16_t>(const AttentionShape&, const AttentionTensors<uint16_t>&);

}  // namespace dg
