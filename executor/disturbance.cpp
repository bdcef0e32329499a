#include "executor/disturbance.h"

#include <chrono>
#include <thread>
#include <utility>

#include "executor/comm/transport.h"
#include "graph/base/error.h"
#include "pipeline/jitter.h"

namespace hetu {
namespace {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

Disturbance::Disturbance(SimulateOptions options, int worker, int width)
    : options_(std::move(options)), worker_(worker), origin_ns_(comm::now_ns()) {
  std::erase_if(options_.slow, [&](const Slowdown& s) {
    return s.worker >= 0 ? s.worker != worker : s.pipeline != worker / width;
  });
}

void Disturbance::before() {
  if (options_.hetero > 0 && pauses(options_.seed, worker_, computed_)) sleep_s(options_.hetero);
  ++computed_;
}

void Disturbance::after(std::int64_t start_ns) {
  if (options_.slow.empty()) return;
  const double at = static_cast<double>(start_ns - origin_ns_) * 1e-9;
  double factor = 1;
  for (const Slowdown& s : options_.slow)
    if (at >= s.from && at < s.to) factor *= s.factor;
  if (factor > 1) sleep_s((factor - 1) * static_cast<double>(comm::now_ns() - start_ns) * 1e-9);
}

void check_disturbance(const SimulateOptions& options, int pipelines, int workers) {
  require(options.hetero >= 0, "--hetero {}: a pause is at least 0 s", options.hetero);
  for (const Slowdown& s : options.slow) {
    require(s.pipeline >= 0 || s.worker >= 0,
            "--slow names a pipeline or a worker: \"pipeline=1,factor=2\"");
    require(s.worker < workers, "--slow names worker {}, the job has workers 0…{}", s.worker,
            workers - 1);
    require(s.pipeline < pipelines, "--slow names pipeline {}, the job has pipelines 0…{}",
            s.pipeline, pipelines - 1);
    require(s.factor >= 1, "--slow: factor {}: a real worker can be made slower only, by 1 or more",
            s.factor);
  }
}

}  // namespace hetu
