#include "executor/loop/straggler_injector.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "net/transport/transport.h"
#include "pipeline/cost/stragglers.h"

namespace hetu {
namespace {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

StragglerInjector::StragglerInjector(Stragglers options, int worker, int width)
    : options_(std::move(options)),
      worker_(worker),
      pipeline_(worker / width),
      origin_ns_(comm::now_ns()) {}

void StragglerInjector::before() {
  // The instruction's index selects the pause, as in the simulator, so that a run pauses where its
  // prediction does.
  if (options_.hetero > 0 && pauses(options_.seed, worker_, computed_)) sleep_s(options_.hetero);
  ++computed_;
}

void StragglerInjector::after(std::int64_t start_ns) {
  if (options_.slow.empty()) return;
  const double at = static_cast<double>(start_ns - origin_ns_) * 1e-9;
  const double took_s = static_cast<double>(comm::now_ns() - start_ns) * 1e-9;
  const double lasts_s = slowed_time(options_.slow, pipeline_, worker_, at, took_s);
  if (lasts_s > took_s) sleep_s(lasts_s - took_s);
}

void check_injection(const Stragglers& options, int pipelines, int workers) {
  check_stragglers(options, pipelines, workers);
  for (const Slowdown& s : options.slow)
    require(s.factor >= 1,
            "slow: the factor must be at least 1 in a real run, which can only slow a worker down, "
            "got {}",
            s.factor);
}

}  // namespace hetu
