// The loss scale, a factor that keeps gradients within the range of float16, and its change after a
// step that overflows. Used by train_stages.h; every worker has the same state.
#pragma once
#include <cstdint>
#include <string>

namespace hetu {

/// The value of --loss-scale: a fixed number, or "dynamic".
struct LossScaling {
  bool dynamic = true;
  /// Initial scale. The default is Varuna's; each overflow halves it until gradients fit.
  double first = 1 << 20;
};

/// Parses a loss scale. Throws InvalidArgument unless the text is "dynamic" or a number from 1 to
/// 2^40.
LossScaling parse_loss_scaling(const std::string& text);

/// The loss and every gradient are multiplied by scale(), until the optimizer divides by it. If a
/// gradient isn't finite, no worker of any pipeline updates. A dynamic scale is then halved, but
/// not below 1. It doubles after kWindow consecutive steps without an overflow. Source:
/// Micikevicius et al. 2018, section 3.2; Varuna's step.
class LossScale {
 public:
  /// The state that a checkpoint stores.
  struct State {
    double scale = 1;
    std::int64_t clean = 0;    ///< steps since the last change of the scale
    std::int64_t skipped = 0;  ///< updates skipped because of overflows
  };
  static constexpr int kWindow = 2000;
  static constexpr double kMost = 1LL << 40;

  /// Disables scaling: the scale is 1, and a gradient that isn't finite is an error of the job.
  LossScale() = default;
  explicit LossScale(const LossScaling& how) : is_on_(true), dynamic_(how.dynamic) {
    state_.scale = how.first;
  }

  bool is_on() const { return is_on_; }
  double scale() const { return state_.scale; }
  /// Returns true if the step passed to the last ended() skipped its update.
  bool skips() const { return skips_; }
  const State& state() const { return state_; }
  /// Restores the state from a checkpoint. A fixed or disabled scale keeps its value. Throws
  /// InvalidArgument if the state isn't valid.
  void resume(const State& state);
  /// Updates the scale after a step; `finite` states that all gradients were finite.
  void ended(bool finite);

 private:
  bool is_on_ = false, dynamic_ = false, skips_ = false;
  State state_;
};

}  // namespace hetu
