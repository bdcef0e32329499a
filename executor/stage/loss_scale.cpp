// Parsing, restoring and updating of the loss scale.
#include "executor/stage/loss_scale.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace hetu {

LossScaling parse_loss_scaling(const std::string& text) {
  LossScaling how;
  if (text == "dynamic") return how;
  how.dynamic = false;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, how.first);
  require(error == std::errc() && stop == end && how.first >= 1 && how.first <= LossScale::kMost,
          "--loss-scale must be dynamic or a fixed number from 1 to 2^40, got '{}'", text);
  return how;
}

void LossScale::resume(const State& state) {
  require(state.scale >= 1 && state.scale <= kMost && state.clean >= 0 && state.skipped >= 0,
          "invalid state of a loss scale: scale {}, {} steps since it changed, {} skipped updates",
          state.scale, state.clean, state.skipped);
  state_.skipped = state.skipped;
  if (!dynamic_) return;
  state_.scale = state.scale;
  state_.clean = state.clean;
}

void LossScale::ended(bool finite) {
  if (!is_on_) return;
  skips_ = !finite;
  ++state_.clean;
  if (skips_) ++state_.skipped;
  if (!dynamic_) return;
  if (skips_)
    state_.scale = std::max(1.0, state_.scale / 2);
  else if (state_.clean >= kWindow)
    state_.scale = std::min(kMost, state_.scale * 2);
  else
    return;
  state_.clean = 0;
}

}  // namespace hetu
