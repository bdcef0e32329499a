// The factor of the loss that keeps gradients within float16's range, and what a step that has left
// it does to it. Read by train_stages.h; every worker has the same.
#pragma once
#include <cstdint>
#include <string>

namespace hetu {

/// What --loss-scale says: a number that stays, or "dynamic".
struct LossScaling {
  bool dynamic = true;
  double first = 1 << 20;  ///< Varuna's: halved in as many steps as the model is above it
};

/// Throws InvalidArgument: neither "dynamic" nor a number from 1 to 2^40.
LossScaling parse_loss_scaling(const std::string& text);

/// The loss, and with it every gradient, is multiplied by scale() until the optimizer divides by
/// it. Where a gradient is not finite, no worker of any pipeline updates; a dynamic scale is then
/// halved, down to 1, and doubled after kWindow steps in a row without. Source: Micikevicius et al.
/// 2018, section 3.2; Varuna's step.
class LossScale {
 public:
  /// What goes on from a checkpoint.
  struct State {
    double scale = 1;
    std::int64_t clean = 0;    ///< steps since the scale has changed
    std::int64_t skipped = 0;  ///< updates that were left out
  };
  static constexpr int kWindow = 2000;
  static constexpr double kMost = 1LL << 40;

  /// Off: the scale is 1, and what is not finite is an error of the job.
  LossScale() = default;
  explicit LossScale(const LossScaling& how) : is_on_(true), dynamic_(how.dynamic) {
    state_.scale = how.first;
  }

  bool is_on() const { return is_on_; }
  double scale() const { return state_.scale; }
  /// Whether the step that was told last has left its update out.
  bool skips() const { return skips_; }
  const State& state() const { return state_; }
  /// Of a checkpoint. A fixed scale, or none, stays what it is. Throws InvalidArgument: no state of
  /// one.
  void resume(const State& state);
  /// A step's gradients were all finite, or not.
  void ended(bool finite);

 private:
  bool is_on_ = false, dynamic_ = false, skips_ = false;
  State state_;
};

}  // namespace hetu
