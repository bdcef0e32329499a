#include "executor/stage/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "graph/base/error.h"

namespace hetu {
namespace {

using Kind = LearningRate::Kind;

constexpr const char* kNames[] = {"constant",   "linear",     "step",
                                  "multi_step", "polynomial", "cosine"};

// The shape after the warm-up, from 1 (but for Linear) on.
double shape(const LearningRate& r, std::int64_t k) {
  const auto n = static_cast<double>(r.total - r.warmup);
  const double done = static_cast<double>(k) / n;
  switch (r.kind) {
    case Kind::Constant:
      return 1;
    case Kind::Linear:
      return std::max(0.0, (n - static_cast<double>(k + 1)) / n);
    case Kind::Step:
      return std::pow(r.gamma, static_cast<double>(k / r.every));
    case Kind::MultiStep: {
      const auto passed = std::upper_bound(r.milestones.begin(), r.milestones.end(), k);
      return std::pow(r.gamma, static_cast<double>(passed - r.milestones.begin()));
    }
    case Kind::Polynomial:
      return std::pow(std::max(0.0, 1 - done), r.power);
    case Kind::Cosine: {
      const double low = r.base > 0 ? r.floor / r.base : 0;
      return low + (1 - low) * (1 + std::cos(std::numbers::pi * std::min(1.0, done))) / 2;
    }
  }
  return 1;
}

}  // namespace

double LearningRate::at(std::int64_t update) const {
  const double full = base * factor;
  if (update <= warmup) return full * static_cast<double>(update) / static_cast<double>(warmup);
  return full * shape(*this, update - warmup - 1);
}

const char* rate_name(Kind kind) { return kNames[static_cast<int>(kind)]; }

Kind parse_rate(std::string_view name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (name == kNames[i]) return static_cast<Kind>(i);
    known += (i ? ", " : "") + std::string(kNames[i]);
  }
  fail(Code::InvalidArgument, "unknown learning rate '{}'; known: {}", name, known);
}

void check_rate(const LearningRate& r) {
  const char* name = rate_name(r.kind);
  require(std::isfinite(r.base) && r.base >= 0, "learning rate must be finite and >= 0, got {}",
          r.base);
  require(r.warmup >= 0, "{} rate: warm-up must be >= 0 updates, got {}", name, r.warmup);
  const bool ends = r.kind == Kind::Linear || r.kind == Kind::Polynomial || r.kind == Kind::Cosine;
  require(!ends || r.total > r.warmup,
          "{} rate: it must end after the warm-up, got total {} and warm-up {}", name, r.total,
          r.warmup);
  require(r.every >= 1, "{} rate: 'every' must be >= 1 update, got {}", name, r.every);
  require(r.gamma > 0 && std::isfinite(r.gamma), "{} rate: gamma must be finite and > 0, got {}",
          name, r.gamma);
  require(r.power > 0 && std::isfinite(r.power), "{} rate: power must be finite and > 0, got {}",
          name, r.power);
  require(r.floor >= 0 && r.floor <= r.base, "{} rate: floor must be in [0, {}], got {}", name,
          r.base, r.floor);
  require(r.kind != Kind::MultiStep || !r.milestones.empty(), "multi_step rate: no milestones");
  for (std::size_t i = 0; i < r.milestones.size(); ++i) {
    require(r.milestones[i] > (i ? r.milestones[i - 1] : 0),
            "multi_step rate: milestones must ascend from 1, got {} as number {}", r.milestones[i],
            i + 1);
  }
  require(std::isfinite(r.factor) && r.factor >= 0,
          "{} rate: factor must be finite and >= 0, got {}", name, r.factor);
}

}  // namespace hetu
