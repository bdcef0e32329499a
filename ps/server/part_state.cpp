#include "ps/server/part_state.h"

#include <algorithm>
#include <cstring>

#include "ps/server/add_in_pairs.h"

namespace hetu::ps::server {

namespace {

const TensorKernels& kernels() { return cpu_tensor_kernels(); }

/// Floats at an aligned address: the given bytes, or an aligned copy from the pool.
class Aligned {
 public:
  Aligned(const std::byte* values, std::int64_t elements, BlockPool& pool) {
    if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0) {
      data_ = reinterpret_cast<const float*>(values);
      return;
    }
    copy_ = pool.take(elements);
    std::memcpy(copy_.get(), values, static_cast<std::size_t>(elements) * sizeof(float));
    data_ = copy_.get();
  }
  const float* data() const { return data_; }

 private:
  std::shared_ptr<float> copy_;
  const float* data_ = nullptr;
};

/// Calls `act` for the stretches of `within`, cut at the ends of the `undecayed` ranges, in
/// ascending order. The second argument is true where weights decay.
template <class Do>
void for_each_stretch(const std::vector<Span>& undecayed, Span within, const Do& act) {
  std::int64_t at = within.begin;
  auto next = std::partition_point(undecayed.begin(), undecayed.end(),
                                   [&](const Span& span) { return span.end <= at; });
  while (at < within.end) {
    const std::int64_t border =
        next == undecayed.end() ? within.end : std::min(next->begin, within.end);
    if (at < border) {
      act(Span{at, border}, true);
      at = border;
    } else {
      const std::int64_t end = std::min(next->end, within.end);
      act(Span{at, end}, false);
      at = end;
      ++next;
    }
  }
}

}  // namespace

// Planes that the opener of the table did not send begin as zeros, as an optimizer's states do.
PartState::PartState(const UpdateRule& rule, std::int64_t begin, FirstPlanes first, int members,
                     std::shared_ptr<BlockPool> pool)
    : rule_(rule),
      begin_(begin),
      pool_(std::move(pool)),
      share_(pool_->budget(), overhead(members)),
      kept_(static_cast<std::size_t>(members)),
      counts_{.updates = first.updates} {
  planes_.push_back(std::move(first.planes.at(0)));
  for (int p = 1; p < rule.planes(); ++p) {
    const auto found = first.planes.find(p);
    planes_.push_back(found == first.planes.end() ? PartValues(elements(), pool_)
                                                  : std::move(found->second));
  }
}

void PartState::take(int member, double rate, const std::byte* values) {
  if (rule_.rule != Rule::Each) {
    kept_[static_cast<std::size_t>(member)].push_back({rate, copy_of(values)});
    return;
  }
  ++counts_.pushes;
  ++counts_.updates;
  if (rule_.optimizer) {
    sweep(Aligned(values, elements(), *pool_).data(), rate, 1);
  } else {
    planes_.front().add(values);
  }
}

void PartState::apply_rounds(std::int64_t slowest,
                             const std::function<void(int member, std::int64_t round)>& heard) {
  if (rule_.rule == Rule::Each) return;
  while (counts_.rounds < slowest) {
    const Round round = take_round();
    if (round.members.empty()) return;  // all members have left
    ++counts_.rounds;
    ++counts_.updates;
    const auto parts = static_cast<std::int64_t>(round.members.size());
    counts_.pushes += parts;
    const double factor = rule_.rule == Rule::RoundMean ? 1.0 / static_cast<double>(parts) : 1.0;
    float* sum = round.sum.values.get();
    if (rule_.optimizer) {
      sweep(sum, round.sum.rate, factor);
    } else {
      kernels().scale(sum, static_cast<float>(factor), elements());
      planes_.front().add(reinterpret_cast<const std::byte*>(sum));
    }
    for (const int member : round.members) heard(member, counts_.rounds);
  }
}

std::shared_ptr<float> PartState::copy_of(const void* values) {
  std::shared_ptr<float> copy = pool_->take(elements());
  std::memcpy(copy.get(), values, static_cast<std::size_t>(elements()) * sizeof(float));
  return copy;
}

PartState::Round PartState::take_round() {
  Round round;
  std::vector<std::shared_ptr<float>> pushes;
  for (std::size_t m = 0; m < kept_.size(); ++m) {
    if (kept_[m].empty()) continue;  // the member has left
    Kept next = std::move(kept_[m].front());
    kept_[m].pop_front();
    if (pushes.empty()) round.sum.rate = next.rate;
    pushes.push_back(std::move(next.values));
    round.members.push_back(static_cast<int>(m));
  }
  if (pushes.empty()) return round;
  // A snapshot may still read a push that becomes a sum, so the sum needs its own memory.
  const auto own = [&](std::shared_ptr<float>& values) {
    if (values.use_count() > 1) values = copy_of(values.get());
  };
  add_in_pairs(pushes, [&](std::shared_ptr<float>& to, const std::shared_ptr<float>& from) {
    own(to);
    kernels().add(to.get(), from.get(), elements());
  });
  own(pushes.front());
  round.sum.values = std::move(pushes.front());
  return round;
}

// One sweep per stretch: elements in `undecayed` ranges of the table are updated without weight
// decay. The ranges are relative to the table, and the part begins at begin_.
void PartState::sweep(const float* gradient, double rate, double factor) {
  const ServerOptimizer& optimizer = *rule_.optimizer;
  const Sweep run = kernels().sweep(optimizer_name(optimizer.settings.kind));
  SweepCall call = sweep_call(optimizer.settings, rate, factor, counts_.updates);
  float* planes[kMostPlanes] = {};
  for (std::size_t p = 0; p < planes_.size(); ++p) planes[p] = planes_[p].writable();
  for_each_stretch(optimizer.undecayed, {begin_, begin_ + elements()},
                   [&](const Span& stretch, bool decay) {
                     const std::int64_t at = stretch.begin - begin_;
                     call.weight = planes[0] + at;
                     call.gradient = gradient + at;
                     for (std::size_t p = 1; p < planes_.size(); ++p) {
                       call.state[p - 1] = planes[p] + at;
                     }
                     call.elements = stretch.end - stretch.begin;
                     call.decay = decay;
                     run(call);
                   });
}

}  // namespace hetu::ps::server
