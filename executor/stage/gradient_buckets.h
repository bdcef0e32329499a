// The gradient sums of a stage, grouped into buckets. A bucket is a range of accumulators that is
// summed with the other copies in one operation, as soon as all its gradients are final.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/compile/sum_layout.h"
#include "executor/device/device.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"

namespace hetu {

/// The gradient buckets of one stage.
class GradientBuckets {
 public:
  /// Settings of the sums.
  struct How {
    std::int64_t bucket_bytes = 1;
    /// Buckets are summed in the device's memory, without a copy on the host.
    bool direct = false;
    /// Gradients are added in the order of a tree (sum_tree.h) over these copies. Null: each copy
    /// adds them one by one, and the sums of copies are added afterwards.
    const SumLayout* tree = nullptr;
  };
  /// Plan, memory, device and layout must outlive the object. Adjacent parameters form a bucket
  /// until it has `bucket_bytes`. Tied parameters and tables stored by rows have buckets of their
  /// own, and with a tree also parameters with several uses on this stage.
  GradientBuckets(const StagePlan& plan, const StageMemory& memory, Device& device, How how);

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
  /// Returns true if the gradient of this micro-batch is written to place(), not added to it.
  /// Micro-batches are numbered over all pipelines here.
  bool is_first(int use, int micro) const;
  /// Returns the location of the sum that the gradient of this micro-batch is a part of.
  Loc place(int use, int micro) const;
  /// Appends what determines the kernels that add this gradient.
  void append_state(int use, int micro, std::string& key) const;
  /// Adds partial sums to each other that are complete with this micro-batch.
  void merge(int use, int micro);
  /// Notes that the gradient of the micro-batch was added, and merge() done.
  void filled(int use, int micro);
  /// Returns the partial sums that the use has in this step. Only with a tree.
  std::vector<SumTree::Held> held(int use) const { return trees_.at(use).held(); }
  /// Returns true if a copy of the stage, or another stage, holds the parameter, too.
  bool has_holders(const StageParameter& parameter) const;
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
  /// Returns true for the inverse of a factor.
  bool is_inverse(int bucket) const { return buckets_[bucket].is_inverse; }
  bool is_tied(int bucket) const { return buckets_[bucket].tied_pair != kNone; }
  int bucket_of(int parameter) const { return bucket_of_[parameter]; }
  /// Returns the parameters of the bucket, as indices into the plan.
  std::vector<int> parameters_of(int bucket) const;
  /// Marks the parameter's bucket as shared: another stage of this worker adds to it. It is then
  /// summed at its REDUCE_GRAD, when all gradients on this worker are complete.
  void share(int parameter) { buckets_[bucket_of_[parameter]].shared = true; }

  /// Returns the buckets of a REDUCE_GRAD, SYNC_A or SYNC_B. Part 0 of a REDUCE_GRAD is everything
  /// that only copies of this stage share, and part 1 + t is tied pair t. The part of a SYNC_A or
  /// SYNC_B is the layer of the factor.
  std::vector<int> of(const Instr& reduce) const;
  /// Returns the buckets of the inverses of layers first, …, end - 1, for a GATHER.
  std::vector<int> inverses(int first, int end) const;
  /// Returns the bucket as it takes part in a sum. An inverse that another copy made is set to -0
  /// first, so that the sum equals that copy's inverse.
  Bucket bucket(int bucket);
  /// Returns a partial sum of a use, for `elements` elements, stored where bucket() would store it.
  const void* term(int bucket, int use, int slot, std::int64_t elements);
  /// Returns the device address of a partial sum of a use.
  float* in_slot(int use, int slot) const;
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
    std::vector<float> host = {};  // host copy, for devices with their own memory without direct
    std::map<std::pair<int, int>, std::vector<float>> terms = {};  // by use and slot, likewise
  };

  const StagePlan& plan_;
  const StageMemory& memory_;
  Device& device_;
  const How how_;
  bool is_factor(int use) const {
    return plan_.parameters[plan_.uses[use].parameter].role != Parameter::Role::Weight;
  }

  bool by_tree() const { return how_.tree != nullptr; }
  void clear(int use);
  void make_weight_buckets();

  std::vector<char> fresh_;     // by use: nothing accumulated yet in this step
  std::vector<SumTree> trees_;  // by use; empty without a tree
  std::vector<int> bucket_of_;  // by parameter of the plan
  std::vector<Range> buckets_;
};

}  // namespace hetu
