// What a worker's kernels made in a step, tensor by tensor, in a form small enough to send: what
// compare_single.h lays beside the same step of one process.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// A tensor in few numbers. Equal tensors have equal checksums; of two that are not, the sketches
/// tell how far apart they are.
struct TensorSketch {
  double norm = 0;
  /// Sums of the elements, each with a sign that depends on sum and element alone: linear, so the
  /// difference of two sketches is that of the difference, and its mean square is about |a - b|^2.
  /// Source: Achlioptas 2003, "Database-friendly random projections", theorem 1.1.
  std::array<double, 32> sums{};
  std::uint32_t checksum = 0;
};

/// Of `elements` elements, dense, in the order of memory.
TensorSketch sketch_of(const void* data, DType dtype, std::int64_t elements);

/// About |a - b|, from the sketches of a and b: within a factor of 3 but for one in a million. 0
/// only if no difference shows; NaN where there is one.
double distance(const TensorSketch& a, const TensorSketch& b);

/// One tensor of a step. Plain data: it goes from worker to worker as bytes.
struct TensorRecord {
  enum class What : std::int32_t { Result, GradientSum, Weight };
  What what = What::Result;
  std::int32_t id = 0;         ///< Result: value of the graph; else parameter of the graph
  std::int32_t micro = kNone;  ///< Result: of the step, over all pipelines
  std::int32_t stage = 0;      ///< model stage
  TensorSketch sketch;
};

/// The records of one worker's step, in the order in which they were made.
class TensorLog {
 public:
  /// The graph must outlive it.
  explicit TensorLog(const Graph& graph) : graph_(graph) {}

  /// A node has run on a micro-batch of so many samples; `outputs` are its results.
  void ran(NodeId node, int stage, int micro, std::int64_t samples, void* const* outputs);
  /// A tensor of a parameter at the end of the step.
  void add(TensorRecord::What what, const std::string& parameter, int stage, const float* data,
           std::int64_t elements);

  const std::vector<TensorRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  const Graph& graph_;
  std::vector<TensorRecord> records_;
};

/// Records as bytes, and back. records_from throws Internal unless the length fits.
std::string bytes_of(const std::vector<TensorRecord>& records);
std::vector<TensorRecord> records_from(const std::string& bytes);

}  // namespace hetu
