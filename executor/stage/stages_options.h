// A worker's position in the job. Used by train_stages.h and its parts.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/compile/segments.h"
#include "executor/compile/shares.h"
#include "executor/compile/sum_layout.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A worker's position in the job, and the groups that it sums with.
struct StagesOptions {
  const Schedule* plan = nullptr;   ///< lowered; must outlive the stages
  const Schedule* cycle = nullptr;  ///< with K-FAC: the whole cycle; must outlive the stages
  int pipeline = 0;
  int pipelines = 1;  ///< number of pipelines whose workers the transport links
  int workers_per_pipeline = 1;
  /// Segments, if the pipelines have different cuts. Empty: all have the same cut.
  std::vector<Segment> segments = {};
  int micro_batches = 1;  ///< of this pipeline per step
  /// Micro-batches of each pipeline, if they differ; see JobOptions. Empty: micro_batches each.
  std::vector<int> shares = {};
  std::int64_t micro_batch = 1;  ///< samples
  int micro_ids = 1;        ///< ids of any two micro-batches in flight differ by less; see SlotRing
  bool by_version = false;  ///< the plan is asynchronous: stages update one by one
  std::uint64_t seed = 0;
  /// The copies whose gradients are added in the order of a tree; without copies: in a running sum
  /// per copy.
  SumLayout sums = {};
  std::int64_t bucket_bytes = 8 << 20;  ///< least size of a gradient bucket
  bool repeats = false;                 ///< functions are recorded and replayed, see Queue::repeat
  bool direct = false;                  ///< messages and buckets stay in the device's memory

  /// Returns the micro-batches of the pipelines before this one, and those of all linked pipelines.
  int first_micro() const { return micros_before(shares, micro_batches, pipeline); }
  int all_micros() const { return micros_before(shares, micro_batches, pipelines); }
};

}  // namespace hetu
