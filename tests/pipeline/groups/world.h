// Simulates parallel pipelines as events with random times, in PipeDream's order, or with a flush
// and one micro-batch per step. It shares no code with pipeline/simulate. It drives the policy as
// workers do, where each worker knows only its own answers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::groups {

struct World {
  Options options;
  std::vector<double> slowness;  ///< per pipeline; 1: a forward takes 30 ms, a backward 60 ms
  double jitter = 0;             ///< times are multiplied by 1 + jitter * |normal|
  bool exponential = false;      ///< times have an exponential distribution instead
  double pauses = 0;             ///< seconds of a pause before a tenth of all computations
  bool overlapped = true;        ///< if false, a stage waits for its answer before it continues
  std::int64_t averaging_us = 0;
  std::int64_t updates = 10;  ///< M
  std::int64_t done = 0;      ///< updates before the run
  std::uint64_t seed = 0;
  int dies = -1;  ///< this pipeline dies at a random moment of the run

  std::string describe() const;
};

struct WorldRun {
  std::vector<Decision> log;
  std::vector<std::vector<std::int64_t>> updates;  ///< [pipeline][stage] in this run
  std::vector<std::int64_t> micros;                ///< [pipeline] micro-batches begun at stage 0
  std::vector<double> finished_us;                 ///< [pipeline] the end of its last stage
  std::string stuck;                               ///< why the run could not end; empty if it ended
};

WorldRun run(const World& world);

}  // namespace hetu::groups
