// Threads that work through the rows of a batch. A RowSource whose rows cost much holds one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace hetu {

class RowThreads {
 public:
  /// `threads` >= 1, the caller's among them: with 1, no thread is started.
  explicit RowThreads(int threads);
  ~RowThreads();
  RowThreads(const RowThreads&) = delete;
  RowThreads& operator=(const RowThreads&) = delete;

  int threads() const;

  /// Calls work(row, thread) once for each row of 0..rows-1, with thread in [0, threads()), and
  /// returns when all are done. Rethrows what the lowest row that failed threw. One caller at a
  /// time.
  void each(std::int64_t rows, const std::function<void(std::int64_t row, int thread)>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
