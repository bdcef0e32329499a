// The message for a job that was started with the wrong number of workers.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"

namespace hetu {

/// Returns a number with its noun: "1 worker", "2 workers".
inline std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Returns the message for `started` workers where `pipelines` pipelines need `needed` workers.
/// `each` describes a pipeline, such as "2 stages".
inline std::string wrong_workers(int pipelines, const std::string& each, int needed, int started) {
  return fmt::format("{} of {} {} {}, but {} {} started; start the program with heturun -w {}",
                     counted(pipelines, "pipeline"), each, pipelines == 1 ? "needs" : "need",
                     counted(needed, "worker"), started, started == 1 ? "was" : "were", needed);
}

}  // namespace hetu
