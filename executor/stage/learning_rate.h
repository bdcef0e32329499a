// Learning rate schedules as data, and their value at each update.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// The learning rate as a function of the update's number, counted from 1. A linear warm-up `base *
/// update / warmup` lasts up to update `warmup`. Then follows a shape in k = update - warmup - 1,
/// which is 0 at the first update after the warm-up. Without a warm-up the shapes are those of
/// torch.optim.lr_scheduler stepped once per update; with a warm-up, those of SequentialLR.
struct LearningRate {
  enum class Kind : std::uint8_t {
    Constant,   ///< base
    Linear,     ///< linear decay to 0 at update `total`: base * (total - update) / (total - warmup)
    Step,       ///< base * gamma^floor(k / every); with every = 1: exponential
    MultiStep,  ///< base * gamma^(number of milestones <= k)
    Polynomial,  ///< base * (1 - k / n)^power with n = total - warmup; 0 afterwards
    Cosine,      ///< half a cosine wave from base to `floor` over n updates, then constant
    /// The schedule of the original BERT (Devlin et al. 2018, as in pytorch-pretrained-bert's
    /// BertAdam). With x = (update - 1) / total, the rate is base * x / share up to the warm-up's
    /// share. Then it is base * (1 - x) / (1 - share), and 0 from update total + 1 on. The first
    /// update has rate 0.
    BertLinear,
    /// The schedule of NVIDIA's BERT with LAMB. With x = update / total, the rate is base * x /
    /// share below the warm-up's share, then base * (1 - x)^power. The decay starts at a lower rate
    /// than the warm-up reaches.
    Nvlamb,
  };
  Kind kind = Kind::Constant;
  double base = 0.1;
  std::int64_t warmup = 0;  ///< updates
  std::int64_t total = 0;   ///< updates of the whole schedule, including the warm-up
  std::int64_t every = 1;   ///< Step: updates between two decays
  double gamma = 0.1;       ///< Step, MultiStep
  double power = 1;         ///< Polynomial, Nvlamb
  double share = 0.1;       ///< BertLinear, Nvlamb: fraction of `total` that is warm-up
  double floor = 0;         ///< Cosine
  /// MultiStep: ascending counts of updates after the warm-up.
  std::vector<std::int64_t> milestones = {};
  double factor = 1;  ///< multiplies the rate; changed by schedules that follow a metric

  /// Returns the learning rate of an update, counted from 1.
  double at(std::int64_t update) const;
};

/// Returns the name of a kind: "constant", "linear", "step", "multi_step", "polynomial", "cosine",
/// "bert_linear" or "nvlamb".
const char* rate_name(LearningRate::Kind kind);
/// Returns the kind with this name. Throws InvalidArgument, listing the known names.
LearningRate::Kind parse_rate(std::string_view name);

/// Returns the settings of a learning rate.
Fields fields(LearningRate& rate);

/// Throws InvalidArgument, stating the setting, its value and the valid values.
void check_rate(const LearningRate& rate);

}  // namespace hetu
