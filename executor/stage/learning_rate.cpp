// Shapes of learning rates, their settings and checks.
#include "executor/stage/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

using RateKind = LearningRate::Kind;

constexpr const char* kRateNames[] = {"constant",   "linear", "step",        "multi_step",
                                      "polynomial", "cosine", "bert_linear", "nvlamb"};

// Returns true for kinds with their own warm-up, as a fraction of `total`.
bool goes_by_share(RateKind kind) {
  return kind == RateKind::BertLinear || kind == RateKind::Nvlamb;
}

double shape_by_share(const LearningRate& r, std::int64_t update) {
  const auto total = static_cast<double>(r.total);
  const double x = static_cast<double>(r.kind == RateKind::Nvlamb ? update : update - 1) / total;
  if (x < r.share) return x / r.share;
  const double left = std::max(0.0, 1 - x);
  return r.kind == RateKind::Nvlamb ? std::pow(left, r.power) : left / (1 - r.share);
}

// Returns the shape after the warm-up. It starts at 1 for all kinds except Linear.
double shape(const LearningRate& r, std::int64_t k) {
  const auto n = static_cast<double>(r.total - r.warmup);
  const double done = static_cast<double>(k) / n;
  switch (r.kind) {
    case RateKind::Constant:
      return 1;
    case RateKind::Linear:
      return std::max(0.0, (n - static_cast<double>(k + 1)) / n);
    case RateKind::Step: {
      const std::int64_t steps = k / r.every;
      return std::pow(r.gamma, static_cast<double>(steps));
    }
    case RateKind::MultiStep: {
      const auto passed = std::upper_bound(r.milestones.begin(), r.milestones.end(), k);
      return std::pow(r.gamma, static_cast<double>(passed - r.milestones.begin()));
    }
    case RateKind::Polynomial:
      return std::pow(std::max(0.0, 1 - done), r.power);
    case RateKind::Cosine: {
      const double low = r.base > 0 ? r.floor / r.base : 0;
      return low + (1 - low) * (1 + std::cos(std::numbers::pi * std::min(1.0, done))) / 2;
    }
    case RateKind::BertLinear:
    case RateKind::Nvlamb:
      break;
  }
  return 1;
}

}  // namespace

// Cosine has its floor relative to base, so `factor` scales the floor, too.
double LearningRate::at(std::int64_t update) const {
  const double full = base * factor;
  if (goes_by_share(kind)) return full * shape_by_share(*this, update);
  if (update <= warmup) return full * static_cast<double>(update) / static_cast<double>(warmup);
  return full * shape(*this, update - warmup - 1);
}

const char* rate_name(RateKind kind) { return kRateNames[static_cast<int>(kind)]; }

RateKind parse_rate(std::string_view name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kRateNames)); ++i) {
    if (name == kRateNames[i]) return static_cast<RateKind>(i);
    known += (i ? ", " : "") + std::string(kRateNames[i]);
  }
  fail(Code::InvalidArgument, "unknown learning rate '{}'; known: {}", name, known);
}

Fields fields(LearningRate& r) {
  const auto setting = [](const char* name, FieldPointer value, const char* doc, Range range = {}) {
    return OptionField{
        .name = name, .value = std::move(value), .doc = doc, .range = range, .flag = ""};
  };
  OptionField kind = setting("kind",
                             TextAccess{[&r] { return rate_name(r.kind); },
                                        [&r](const std::string& v) { r.kind = parse_rate(v); }},
                             "shape of the learning rate after the warm-up");
  kind.choices.assign(std::begin(kRateNames), std::end(kRateNames));
  return {
      {.name = "base",
       .value = &r.base,
       .argument = "RATE",
       .doc = "learning rate after the warm-up",
       .flag = "--learning-rate"},
      kind,
      setting("warmup", &r.warmup, "number of updates of the linear warm-up"),
      setting("total", &r.total, "number of updates including the warm-up, for shapes that end"),
      setting("every", &r.every, "updates between two drops, for step", {.least = 1}),
      setting("gamma", &r.gamma, "factor of each drop, for step and multi_step", {.above = true}),
      setting("power", &r.power, "exponent, for polynomial and nvlamb", {.above = true}),
      setting("share", &r.share,
              "share of the updates that are warm-up, for bert_linear and nvlamb",
              {.least = 0, .most = 1, .below = true}),
      setting("floor", &r.floor, "lowest learning rate, for cosine"),
      setting("milestones", &r.milestones,
              "updates after the warm-up at which the rate drops, ascending, for multi_step",
              {.least = 1}),
  };
}

void check_rate(const LearningRate& r) {
  const char* name = rate_name(r.kind);
  LearningRate stated = r;
  check_fields(fields(stated));
  const bool ends =
      r.kind == RateKind::Linear || r.kind == RateKind::Polynomial || r.kind == RateKind::Cosine;
  require(!ends || r.total > r.warmup,
          "{} rate: total must be larger than the warm-up, got total {} and warm-up {}", name,
          r.total, r.warmup);
  require(!goes_by_share(r.kind) || (r.total > 0 && r.warmup == 0),
          "{} rate: total must be above 0 and the warm-up 0, because share sets the warm-up; got "
          "total {} and warm-up {}",
          name, r.total, r.warmup);
  require(r.floor <= r.base, "{} rate: floor must be in [0, {}], got {}", name, r.base, r.floor);
  require(r.kind != RateKind::MultiStep || !r.milestones.empty(),
          "multi_step rate: give at least one milestone");
  for (std::size_t i = 1; i < r.milestones.size(); ++i) {
    require(r.milestones[i] > r.milestones[i - 1],
            "multi_step rate: milestones must ascend from 1, got {} as number {}", r.milestones[i],
            i + 1);
  }
  require(std::isfinite(r.factor) && r.factor >= 0,
          "{} rate: factor must be finite and >= 0, got {}", name, r.factor);
}

}  // namespace hetu
