// Learning rates: a shape as data, and its value for every update. Read live by each update.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// Learning rate as a function of the number of the update, counted from 1: a linear warm-up
/// `base * update / warmup` up to update `warmup`, then a shape of k = update - warmup - 1, which
/// is 0 at the first update after the warm-up. Without a warm-up the shapes are those of
/// torch.optim.lr_scheduler stepped once per update; with one, those of SequentialLR.
struct LearningRate {
  enum class Kind : std::uint8_t {
    Constant,    ///< base
    Linear,      ///< down to 0 at update `total`: base * (total - update) / (total - warmup)
    Step,        ///< base * gamma^(k / every), whole quotients; every 1: exponential
    MultiStep,   ///< base * gamma^(milestones that are <= k)
    Polynomial,  ///< base * (1 - k / n)^power with n = total - warmup, then 0
    Cosine,      ///< from base to `floor` in half a wave over n, where it stays
    /// Of BERT's own training (Devlin et al. 2018, as in pytorch-pretrained-bert's BertAdam), with
    /// x = (update - 1) / total: base * x / share up to the warm-up's share, then base * (1 - x) /
    /// (1 - share), and 0 from update total + 1 on. The first update has rate 0.
    BertLinear,
    /// Of NVIDIA's BERT by LAMB, with x = update / total: base * x / share below the warm-up's
    /// share, then base * (1 - x)^power, which begins lower than the warm-up has ended.
    Nvlamb,
  };
  Kind kind = Kind::Constant;
  double base = 0.1;
  std::int64_t warmup = 0;  ///< updates
  std::int64_t total = 0;   ///< updates, with the warm-up: all that end
  std::int64_t every = 1;   ///< updates: Step
  double gamma = 0.1;       ///< Step, MultiStep
  double power = 1;         ///< Polynomial, Nvlamb
  double share = 0.1;       ///< BertLinear, Nvlamb: of the updates that are warm-up
  double floor = 0;         ///< Cosine
  std::vector<std::int64_t> milestones = {};  ///< ascending counts of updates after the warm-up
  double factor = 1;  ///< multiplies all of it: what a rate that follows a measure changes

  double at(std::int64_t update) const;
};

/// "constant", "linear", "step", "multi_step", "polynomial", "cosine", "bert_linear",
/// "nvlamb".
const char* rate_name(LearningRate::Kind kind);
/// The inverse of rate_name. Throws InvalidArgument, naming the known ones.
LearningRate::Kind parse_rate(std::string_view name);

/// What may be told of a rate.
Fields fields(LearningRate& rate);

/// Throws InvalidArgument, naming the setting, its value and what is right.
void check_rate(const LearningRate& rate);

}  // namespace hetu
