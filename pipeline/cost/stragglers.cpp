#include "pipeline/cost/stragglers.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mix.h"

namespace hetu {
namespace {

// Returns a random number in (0, 1). `stream` separates the numbers of one instruction.
double uniform(std::uint64_t seed, int worker, std::int64_t index, std::uint64_t stream) {
  const std::uint64_t bits =
      mix(mix(mix(seed) ^ static_cast<std::uint64_t>(worker)) ^ static_cast<std::uint64_t>(index)) ^
      mix(stream);
  return (static_cast<double>(mix(bits) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

// Box-Muller: two uniform numbers give one of a normal distribution.
double jitter_factor(std::uint64_t seed, int worker, std::int64_t index, double strength) {
  if (strength == 0) return 1;
  constexpr double kTau = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log(uniform(seed, worker, index, 1)));
  return 1 + strength * std::fabs(radius * std::cos(kTau * uniform(seed, worker, index, 2)));
}

double slowed_time(const std::vector<Slowdown>& slow, int pipeline, int worker, double at,
                   double time) {
  double least = 0;
  for (const Slowdown& s : slow) {
    if ((s.pipeline < 0 || s.pipeline == pipeline) && (s.worker < 0 || s.worker == worker) &&
        at >= s.from && at < s.to) {
      time *= s.factor;
      least = std::max(least, s.least);
    }
  }
  return std::max(time, least);
}

bool pauses(std::uint64_t seed, int worker, std::int64_t index) {
  return uniform(seed, worker, index, 3) < 0.1;
}

Fields fields(Slowdown& s) {
  constexpr Range kIndex{0, 1 << 20};
  return {{.name = "pipeline",
           .value = &s.pipeline,
           .doc = "pipeline whose workers are slowed",
           .range = kIndex,
           .otherwise = ""},
          {.name = "worker",
           .value = &s.worker,
           .doc = "worker that is slowed, counted over all pipelines",
           .range = kIndex,
           .otherwise = ""},
          {.name = "factor",
           .value = &s.factor,
           .doc = "factor for the time of each instruction that starts",
           .range = {.least = 0, .above = true},
           .otherwise = ""},
          {.name = "least",
           .value = &s.least,
           .doc = "minimum time of each instruction that starts",
           .range = {.least = 0},
           .otherwise = ""},
          {.name = "from", .value = &s.from, .doc = "time at which the slowdown begins"},
          {.name = "to",
           .value = &s.to,
           .doc = "time at which the slowdown ends",
           .otherwise = "the end"}};
}

Fields fields(Stragglers& o) {
  const RecordAccess slow{[&o](const std::function<void(const Fields&)>& fill) {
    Slowdown made;
    std::set<std::string> given;
    fill(recorded(fields(made), given));
    require(given.count("factor") + given.count("least") > 0 &&
                given.count("pipeline") != given.count("worker"),
            "needs a pipeline or a worker, not both, and a factor or a least time, for example "
            "\"pipeline=1,factor=2\"");
    o.slow.push_back(made);
  }};
  return {
      {.name = "jitter",
       .value = &o.jitter,
       .argument = "S",
       .doc = "multiply each time by (1 + S |N(0,1)|)"},
      {.name = "seed", .value = &o.seed, .argument = "N", .doc = "seed of jitter and pauses"},
      {.name = "hetero",
       .value = &o.hetero,
       .argument = "X",
       .doc = "pause for X (seconds; in a simulation, time units) before one compute "
              "instruction in ten, to mimic uneven hosts"},
      {.name = "slow",
       .value = slow,
       .argument = "WHO",
       .doc = "slow down a pipeline or a worker: \"pipeline=1,factor=2\" or "
              "\"worker=5,factor=1.3,from=100,to=300\" (times in the unit of --hetero); least=T "
              "in place of factor=X is a minimum time of each instruction; may be repeated"}};
}

void check_stragglers(const Stragglers& o, int pipelines, int workers) {
  Stragglers stated = o;
  check_fields(fields(stated));
  for (Slowdown s : o.slow) {
    require(s.pipeline >= 0 || s.worker >= 0,
            "slow: needs a pipeline or a worker, for example \"pipeline=1,factor=2\"");
    check_fields(only(fields(s), {"factor", "least"}));
    require(s.pipeline < pipelines, "slow: there is no pipeline {}; the job has pipelines 0…{}",
            s.pipeline, pipelines - 1);
    require(s.worker < workers, "slow: there is no worker {}; the job has workers 0…{}", s.worker,
            workers - 1);
    require(s.from <= s.to, "slow: from {} is after to {}", s.from, s.to);
  }
}

}  // namespace hetu
