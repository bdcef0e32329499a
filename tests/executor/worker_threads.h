// Runs the workers of a job as threads of a test. An error of one worker ends the job.
#pragma once
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/transport/inproc.h"

namespace hetu {

/// Runs `work` once per worker, each on a thread of its own. Returns the text of the first
/// exception, or "" if there is none.
inline std::string on_worker_threads(int workers, const std::function<void(comm::Transport&)>& work,
                                     const comm::Options& options = {}) {
  auto transports = comm::make_inproc(workers, options);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string error;
  for (auto& transport : transports) {
    threads.emplace_back([&, links = transport.get()] {
      try {
        work(*links);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (error.empty()) error = e.what();
        links->abort(1, error);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return error;
}

}  // namespace hetu
