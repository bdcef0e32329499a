// The gradient sums of a stage in buckets: ranges of accumulators that are summed with other copies
// as one, and when each is final.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"

namespace hetu {

class GradientBuckets {
 public:
  /// Plan, memory and device must outlive it. A bucket has at least `bucket_bytes`, but for the
  /// last. `direct`: they are summed where they lie, in the device's memory.
  GradientBuckets(const StagePlan& plan, const StageMemory& memory, Device& device,
                  std::int64_t bucket_bytes, bool direct);

  /// Called when a bucket is final, and may be summed at once.
  std::function<void(int bucket)> ready = [](int) {};

  /// Nothing is in the sums but for factors of K-FAC.
  void begin_sums();
  /// Nothing is in the factors of K-FAC.
  void begin_factors();
  /// The inverse of that factor was made here, and not by another copy of the stage.
  void inverted(int parameter);
  bool is_fresh(int use) const { return fresh_[use] != 0; }
  void filled(int use) { fresh_[use] = 0; }
  /// Nothing was added, since no micro-batch ran here: the sums are zero.
  void clear_if_unused();
  /// A parameter's gradient is whole.
  void parameter_done(int parameter);
  /// Several uses on this stage are added in model order.
  void join_uses();

  float* sum_of(int parameter) const {
    return memory_.floats(plan_.uses[plan_.parameters[parameter].uses[0]].accumulator);
  }
  DeviceSpan span_of(int parameter) const {
    return {sum_of(parameter), plan_.parameters[parameter].elements, &device_};
  }
  /// Which rows of a parameter's gradient hold something; without bits where it is dense.
  TouchedRows rows_of(int parameter) const;
  /// The gradient was changed as a whole: rows that are not zero count as touched.
  void changed(int parameter);
  /// A sum that is a factor of K-FAC, or an inverse.
  bool is_of_factor(int bucket) const { return buckets_[bucket].factor != kNone; }
  bool is_tied(int bucket) const { return buckets_[bucket].tied_pair != kNone; }
  int bucket_of(int parameter) const { return bucket_of_[parameter]; }
  /// Another stage of this worker adds to it: it is summed at its REDUCE_GRAD, when all gradients
  /// here are whole.
  void share(int parameter) { buckets_[bucket_of_[parameter]].shared = true; }

  /// Part 0 of a REDUCE_GRAD is everything that only copies of this stage share; part 1 + t is tied
  /// pair t. Of a SYNC_A or SYNC_B it is the layer of the factor.
  std::vector<int> of(const Instr& reduce) const;
  /// The inverses of layers from `first`, below `end`, for a GATHER.
  std::vector<int> inverses(int first, int end) const;
  /// Of an inverse: zeros where another copy made it, so that the sum is that copy's.
  Bucket bucket(int bucket);
  /// The sums of those stand in host memory, or where they are summed in place of it.
  void summed(const std::vector<int>& buckets);

 private:
  struct Range {  // accumulators that lie one after the other
    float* data = nullptr;
    std::int64_t elements = 0;
    int tied_pair = kNone;
    int parameters = 0;  // how many gradients it waits for in the last backward
    int missing = 0;
    bool shared = false;
    int factor = kNone;            // of K-FAC: the parameter
    bool is_inverse = false;       // of it, and not the sum
    bool made_here = false;        // the inverse, since the last gathering
    int by_rows = kNone;           // the one parameter that it holds, where that goes by rows
    std::vector<float> host = {};  // where the device's memory is not the host's, nor direct_
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
