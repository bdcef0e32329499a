// The threads wait until each() starts a new round. In a round every thread, including the
// caller's, takes the next row under the lock and works on it without the lock. It takes more rows
// until none is left. The caller returns when all rows are done. Rows whose costs differ widely, as
// images do, are balanced in this way.
#include "datasets/row_threads.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace hetu {

struct RowThreads::Impl {
  // Processes rows until all have been taken.
  void work_off(int thread) {
    std::unique_lock lock(mutex);
    while (next < rows) {
      const std::int64_t row = next++;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        (*work)(row, thread);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown && (!error || row < failed)) {
        error = thrown;
        failed = row;
      }
      if (++done == rows) finished.notify_one();
    }
  }

  void run(int thread) {
    std::int64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        started.wait(lock, [&] { return stop || round != seen; });
        if (stop) return;
        seen = round;
      }
      work_off(thread);
    }
  }

  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable started, finished;
  const std::function<void(std::int64_t, int)>* work = nullptr;
  std::int64_t rows = 0, next = 0, done = 0;
  std::int64_t round = 0;
  std::exception_ptr error;
  std::int64_t failed = 0;
  bool stop = false;
};

RowThreads::RowThreads(int threads) : impl_(std::make_unique<Impl>()) {
  require(threads >= 1 && threads <= 4096,
          "the number of reading threads must be from 1 to 4096, got {}", threads);
  for (int thread = 1; thread < threads; ++thread) {
    impl_->threads.emplace_back([impl = impl_.get(), thread] { impl->run(thread); });
  }
}

RowThreads::~RowThreads() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->started.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int RowThreads::threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void RowThreads::each(std::int64_t rows,
                      const std::function<void(std::int64_t row, int thread)>& work) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->work = &work;
    impl_->rows = rows;
    impl_->next = impl_->done = 0;
    impl_->error = nullptr;
    ++impl_->round;
  }
  impl_->started.notify_all();
  impl_->work_off(0);
  std::unique_lock lock(impl_->mutex);
  impl_->finished.wait(lock, [this] { return impl_->done == impl_->rows; });
  if (impl_->error) std::rethrow_exception(impl_->error);
}

}  // namespace hetu
