// Buckets of gradient sums. For example, parameters p0 … p3 with tied p1 give the buckets {p3, p2},
// {p1}, {p0}, if p3 is smaller than bucket_bytes. In the last backward, parameter_done() counts
// down the missing parameters of a bucket. At zero the bucket is final, and its sum over the copies
// may start while the backward goes on.
#include "executor/stage/gradient_buckets.h"

#include <algorithm>
#include <utility>

#include "executor/compile/lifetime.h"

namespace hetu {

// Backward produces gradients from the last parameter to the first, so buckets are cut from the
// end. A tied parameter is a bucket of its own, because its other stage adds to it, too. So is a
// table whose gradient is stored by rows. Tables on parameter servers are in no bucket.
GradientBuckets::GradientBuckets(const StagePlan& plan, const StageMemory& memory, Device& device,
                                 std::int64_t bucket_bytes, bool direct)
    : plan_(plan),
      memory_(memory),
      device_(device),
      direct_(direct),
      bucket_of_(plan.parameters.size(), kNone) {
  for (int p = static_cast<int>(plan.parameters.size()) - 1; p >= 0; --p) {
    const StageParameter& parameter = plan.parameters[p];
    if (parameter.uses.empty() || parameter.served) continue;
    if (parameter.role != Parameter::Role::Weight) continue;
    float* data = sum_of(p);
    const std::int64_t padded = align_up(parameter.elements * 4) / 4;
    Range* last = buckets_.empty() ? nullptr : &buckets_.back();
    const bool by_rows = plan.uses[parameter.uses[0]].width > 0;
    if (last && last->tied_pair == kNone && parameter.tied_pair == kNone && !by_rows &&
        last->by_rows == kNone && data + padded == last->data &&
        last->elements * 4 < bucket_bytes) {
      last->data = data;
      last->elements += padded;
    } else {
      buckets_.push_back({data, parameter.elements, parameter.tied_pair, 0, 0});
      last = &buckets_.back();
      if (by_rows) last->by_rows = p;
    }
    ++last->parameters;
    bucket_of_[p] = static_cast<int>(buckets_.size()) - 1;
  }
  for (int p = 0; p < static_cast<int>(plan.parameters.size()); ++p) {
    if (plan.parameters[p].role == Parameter::Role::Weight) continue;
    buckets_.push_back({sum_of(p), plan.parameters[p].elements});
    buckets_.back().factor = p;
    bucket_of_[p] = static_cast<int>(buckets_.size()) - 1;
    buckets_.push_back({memory.newest(plan.parameters[p].weight), plan.parameters[p].elements});
    buckets_.back().factor = p;
    buckets_.back().is_inverse = true;
  }
  fresh_.assign(plan_.uses.size(), 1);
  begin_sums();
}

void GradientBuckets::begin_factors() {
  for (std::size_t u = 0; u < fresh_.size(); ++u)
    if (is_factor(static_cast<int>(u))) fresh_[u] = 1;
}

void GradientBuckets::inverted(int parameter) {
  for (Range& bucket : buckets_)
    if (bucket.is_inverse && bucket.factor == parameter) bucket.made_here = true;
}

void GradientBuckets::begin_sums() {
  for (std::size_t u = 0; u < fresh_.size(); ++u)
    if (!is_factor(static_cast<int>(u))) fresh_[u] = 1;
  for (const StageUse& use : plan_.uses) {
    if (use.width == 0) continue;  // dense: the first gradient overwrites the accumulator
    device_.queue().run([x = memory_.floats(use.accumulator),
                         touched = memory_.rows(use, use.touched),
                         clear = device_.kernels().clear_rows](AddressMap at) {
      clear(at(x), to_kernel_addresses(touched, at));
    });
  }
  for (Range& bucket : buckets_) bucket.missing = bucket.parameters;
}

void GradientBuckets::clear_if_unused() {
  for (std::size_t u = 0; u < fresh_.size(); ++u)
    if (fresh_[u] == 0 && !is_factor(static_cast<int>(u))) return;
  for (std::size_t u = 0; u < fresh_.size(); ++u) {
    if (is_factor(static_cast<int>(u))) continue;
    const StageUse& use = plan_.uses[u];
    fresh_[u] = 0;
    if (use.width > 0) continue;  // already zero
    device_.queue().run([to = memory_.floats(use.accumulator),
                         n = plan_.parameters[use.parameter].elements,
                         fill = device_.kernels().fill](AddressMap at) { fill(at(to), 0.0F, n); });
  }
}

// Starts the sum over the copies once all parameters of the bucket are done, so that it overlaps
// the rest of the backward.
void GradientBuckets::parameter_done(int parameter) {
  const int b = bucket_of_[parameter];
  if (b == kNone) return;
  if (--buckets_[b].missing > 0 || buckets_[b].shared) return;
  ready(b);
}

void GradientBuckets::join_uses() {
  for (std::size_t p = 0; p < plan_.parameters.size(); ++p) {
    const StageParameter& parameter = plan_.parameters[p];
    if (parameter.uses.size() < 2) continue;
    float* const sum = sum_of(static_cast<int>(p));
    for (std::size_t u = 1; u < parameter.uses.size(); ++u) {
      device_.queue().run([sum, from = memory_.floats(plan_.uses[parameter.uses[u]].accumulator),
                           n = parameter.elements, add = device_.kernels().add](AddressMap at) {
        add(at(sum), at(from), n);
      });
    }
    parameter_done(static_cast<int>(p));
  }
}

std::vector<int> GradientBuckets::of(const Instr& reduce) const {
  const int pair = reduce.part == 0 ? kNone : reduce.part - 1;
  std::vector<int> out;
  if (is_factor_sync(reduce.kind)) {
    const auto role =
        is_of_inputs(reduce.kind) ? Parameter::Role::InputFactor : Parameter::Role::GradientFactor;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].factor == kNone || buckets_[i].is_inverse) continue;
      const StageParameter& p = plan_.parameters[buckets_[i].factor];
      if (p.role == role && p.layer == reduce.part) out.push_back(static_cast<int>(i));
    }
    return out;
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].factor == kNone && buckets_[i].tied_pair == pair)
      out.push_back(static_cast<int>(i));
  }
  return out;
}

std::vector<int> GradientBuckets::inverses(int first, int end) const {
  std::vector<int> out;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].is_inverse) continue;
    const int layer = plan_.parameters[buckets_[i].factor].layer;
    if (first <= layer && layer < end) out.push_back(static_cast<int>(i));
  }
  return out;
}

Bucket GradientBuckets::bucket(int bucket) {
  Range& range = buckets_[bucket];
  if (range.is_inverse && !std::exchange(range.made_here, false)) {
    device_.queue().run([to = range.data, n = range.elements,
                         fill = device_.kernels().fill](AddressMap at) { fill(at(to), 0.0F, n); });
  }
  if (device_.in_host_memory())
    return {DType::Float32,
            range.data,
            range.elements,
            {},
            range.by_rows == kNone ? TouchedRows() : rows_of(range.by_rows)};
  if (direct_) return {DType::Float32, range.data, range.elements, device_.queue().record()};
  range.host.resize(static_cast<std::size_t>(range.elements));
  device_.queue().download(range.host.data(), range.data, range.elements * 4);
  return {DType::Float32, range.host.data(), range.elements, device_.queue().record()};
}

void GradientBuckets::summed(const std::vector<int>& buckets) {
  if (device_.in_host_memory()) return;
  for (const int b : buckets) {
    if (!direct_)
      device_.queue().upload(buckets_[b].data, buckets_[b].host.data(), buckets_[b].elements * 4);
    if (buckets_[b].by_rows != kNone) changed(buckets_[b].by_rows);
  }
}

TouchedRows GradientBuckets::rows_of(int parameter) const {
  if (plan_.parameters[parameter].uses.empty()) return {};
  const StageUse& use = plan_.uses[plan_.parameters[parameter].uses[0]];
  return use.width > 0 ? memory_.rows(use, use.touched) : TouchedRows();
}

void GradientBuckets::changed(int parameter) {
  const TouchedRows touched = rows_of(parameter);
  if (touched.bits == nullptr) return;
  device_.queue().run([x = static_cast<const float*>(sum_of(parameter)), touched,
                       touch = device_.kernels().touch_filled](AddressMap at) {
    touch(at(x), to_kernel_addresses(touched, at));
  });
}

}  // namespace hetu
