// Tasks over ATen's threads and memory that a thread keeps between calls.
#pragma once
#include <ATen/Parallel.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace dg {

// Calls task(i) once for each i below count, in any order; threads take the next one when free.
template <class Task> void parallel_tasks(int64_t count, const Task& task) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(count, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) task(i);
  });
}

// Grows only; the contents are lost at the next `get`.
class Workspace {
 public:
  template <class T> T* get(int64_t count) {
    const size_t bytes = (count * sizeof(T) + kPadding + 63) / 64 * 64;
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<char*>(std::aligned_alloc(64, bytes)));
      if (!memory_) throw std::bad_alloc();
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr size_t kPadding = 256;  // a vector store at the end stays inside
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t size_ = 0;
};

}  // namespace dg
