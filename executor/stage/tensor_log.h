// A log of the tensors that a worker's kernels make in a step, small enough to send.
// compare_single.h compares it with the same step of a single process.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// A tensor reduced to a few numbers. Equal tensors have equal checksums. For unequal tensors, the
/// sketches estimate the distance.
struct TensorSketch {
  double norm = 0;
  /// Sums of the elements with signs that depend only on the sum and the element's index. The sums
  /// are linear, so the difference of two sketches is the sketch of the difference. Its mean square
  /// estimates |a - b|^2.
  /// Source: Achlioptas 2003, "Database-friendly random projections", theorem 1.1.
  std::array<double, 32> sums{};
  std::uint32_t checksum = 0;
};

/// Returns the sketch of `elements` elements, dense, in memory order.
TensorSketch sketch_of(const void* data, DType dtype, std::int64_t elements);

/// Estimates |a - b| from the sketches of a and b, within a factor of 3 in all but one case in a
/// million. 0 means that the sketches don't differ; NaN if an element is NaN.
double distance(const TensorSketch& a, const TensorSketch& b);

/// A tensor of a step. Plain data: workers send it as bytes.
struct TensorRecord {
  enum class Content : std::int32_t { Result, GradientSum, Weight };
  Content what = Content::Result;
  std::int32_t id = 0;         ///< Result: value of the graph; else parameter of the graph
  std::int32_t micro = kNone;  ///< Result: index in the step, over all pipelines
  std::int32_t stage = 0;      ///< model stage
  TensorSketch sketch;
};

/// The records of one worker's step, in order of creation.
class TensorLog {
 public:
  /// The graph must outlive the object.
  explicit TensorLog(const Graph& graph) : graph_(graph) {}

  /// Records the results `outputs` of a node that has run on a micro-batch of `samples` samples.
  void ran(NodeId node, int stage, int micro, std::int64_t samples, void* const* outputs);
  /// Records a tensor of a parameter at the end of the step.
  void add(TensorRecord::Content what, const std::string& parameter, int stage, const float* data,
           std::int64_t elements);

  const std::vector<TensorRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  const Graph& graph_;
  std::vector<TensorRecord> records_;
};

/// Convert records to bytes and back. records_from() throws Internal unless the length fits.
std::string bytes_of(const std::vector<TensorRecord>& records);
std::vector<TensorRecord> records_from(const std::string& bytes);

}  // namespace hetu
