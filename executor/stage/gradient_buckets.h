// The gradient sums of a stage, grouped into buckets. A bucket is a range of accumulators that is
// summed with the other copies in one operation, as soon as all its gradients are final.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"

namespace hetu {

/// The gradient buckets of one stage.
class GradientBuckets {
 public:
  /// Plan, memory and device must outlive the object. Adjacent parameters form a bucket until it
  /// has `bucket_bytes`. Tied parameters and tables stored by rows have buckets of their own. With
  /// `direct`, buckets are summed in the device's memory, without a copy on the host.
  GradientBuckets(const StagePlan& plan, const StageMemory& memory, Device& device,
                  std::int64_t bucket_bytes, bool direct);

  /// Called when a bucket is final and its sum over the copies may start.
  std::function<void(int bucket)> ready = [](int) {};

  /// Marks all sums as empty, except those of K-FAC's factors.
  void begin_sums();
  /// Marks the sums of K-FAC's factors as empty.
  void begin_factors();
  /// Notes that this worker, and no other copy of the stage, made the inverse of the factor.
  void inverted(int parameter);
  /// Returns true if nothing has been added to the sum of the use in this step.
  bool is_fresh(int use) const { return fresh_[use] != 0; }
  /// Notes that the sum of the use has a value.
  void filled(int use) { fresh_[use] = 0; }
  /// Sets all sums to zero if nothing was added to them, because no micro-batch ran here.
  void clear_if_unused();
  /// Notes that the gradient of a parameter is complete.
  void parameter_done(int parameter);
  /// Adds the gradients of the uses of each parameter, in model order, for parameters with several
  /// uses on this stage.
  void join_uses();

  /// Returns the device address of the gradient sum of a parameter of the plan.
  float* sum_of(int parameter) const {
    return memory_.floats(plan_.uses[plan_.parameters[parameter].uses[0]].accumulator);
  }
  DeviceSpan span_of(int parameter) const {
    return {sum_of(parameter), plan_.parameters[parameter].elements, &device_};
  }
  /// Returns the rows of a parameter's gradient that may be nonzero; without bits if it is dense.
  TouchedRows rows_of(int parameter) const;
  /// Marks nonzero rows as touched, after the gradient was changed as a whole.
  void changed(int parameter);
  /// Returns true for the sum or the inverse of a factor of K-FAC.
  bool is_of_factor(int bucket) const { return buckets_[bucket].factor != kNone; }
  bool is_tied(int bucket) const { return buckets_[bucket].tied_pair != kNone; }
  int bucket_of(int parameter) const { return bucket_of_[parameter]; }
  /// Marks the parameter's bucket as shared: another stage of this worker adds to it. It is then
  /// summed at its REDUCE_GRAD, when all gradients on this worker are complete.
  void share(int parameter) { buckets_[bucket_of_[parameter]].shared = true; }

  /// Returns the buckets of a REDUCE_GRAD, SYNC_A or SYNC_B. Part 0 of a REDUCE_GRAD is everything
  /// that only copies of this stage share, and part 1 + t is tied pair t. The part of a SYNC_A or
  /// SYNC_B is the layer of the factor.
  std::vector<int> of(const Instr& reduce) const;
  /// Returns the buckets of the inverses of layers first, …, end - 1, for a GATHER.
  std::vector<int> inverses(int first, int end) const;
  /// Returns the bucket as it takes part in a sum. An inverse that another copy made is set to zero
  /// first, so that the sum equals that copy's inverse.
  Bucket bucket(int bucket);
  /// Copies the sums from host memory to the device, unless they were summed in the device's
  /// memory. Updates the touched rows of tables.
  void summed(const std::vector<int>& buckets);

 private:
  struct Range {  // a range of adjacent accumulators
    float* data = nullptr;
    std::int64_t elements = 0;
    int tied_pair = kNone;
    int parameters = 0;  // gradients in the bucket, all awaited in the last backward
    int missing = 0;
    bool shared = false;
    int factor = kNone;            // parameter index of a factor of K-FAC; else kNone
    bool is_inverse = false;       // holds the factor's inverse, not its sum
    bool made_here = false;        // this worker made the inverse since the last GATHER
    int by_rows = kNone;           // the bucket's only parameter, if its gradient is stored by rows
    std::vector<float> host = {};  // host copy, for devices with their own memory without direct_
  };

  const StagePlan& plan_;
  const StageMemory& memory_;
  Device& device_;
  const bool direct_;
  bool is_factor(int use) const {
    return plan_.parameters[plan_.uses[use].parameter].role != Parameter::Role::Weight;
  }

  std::vector<char> fresh_;     // by use: nothing accumulated yet in this step
  std::vector<int> bucket_of_;  // by parameter of the plan
  std::vector<Range> buckets_;
};

}  // namespace hetu
