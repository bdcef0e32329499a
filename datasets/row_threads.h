// Worker threads that process the rows of a batch. A RowSource whose rows are expensive owns a
// RowThreads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace hetu {

/// A pool of threads for the rows of a batch.
class RowThreads {
 public:
  /// Requires `threads` >= 1, including the calling thread: with 1, no thread is started.
  explicit RowThreads(int threads);
  ~RowThreads();
  RowThreads(const RowThreads&) = delete;
  RowThreads& operator=(const RowThreads&) = delete;

  /// Returns the number of threads, including the calling one.
  int threads() const;

  /// Calls work(row, thread) once for each row of 0..rows-1, with thread in [0, threads()), and
  /// returns when all calls are done. If calls throw, rethrows the exception of the lowest row.
  /// Only one thread may call it at a time.
  void each(std::int64_t rows, const std::function<void(std::int64_t row, int thread)>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
