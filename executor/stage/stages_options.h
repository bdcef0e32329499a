// Where a worker's stages stand in the job. Read by train_stages.h and by what it is made of.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/compile/segments.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Where this worker stands in the job, and what it sums with whom.
struct StagesOptions {
  const Schedule* plan = nullptr;   ///< lowered; must outlive the stages
  const Schedule* cycle = nullptr;  ///< of a job with K-FAC's work: all of it; outlives them, too
  int pipeline = 0;
  int pipelines = 1;  ///< whose workers the transport links
  int workers_per_pipeline = 1;
  /// Where the pipelines are cut each in its own way; empty: all are cut alike.
  std::vector<Segment> segments = {};
  int micro_batches = 1;         ///< per pipeline and step
  std::int64_t micro_batch = 1;  ///< samples
  int micro_ids = 1;             ///< any two micro-batches in work differ by less; see SlotRing
  bool by_version = false;       ///< the plan is asynchronous: stages update one by one
  std::uint64_t seed = 0;
  std::int64_t bucket_bytes = 8 << 20;  ///< least size of a gradient bucket
  bool repeats = false;                 ///< functions are recorded, see Queue::repeat
  bool direct = false;                  ///< messages and buckets lie in the device's memory
};

}  // namespace hetu
