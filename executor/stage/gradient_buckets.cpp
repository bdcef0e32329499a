// Buckets of gradient sums. For example, parameters p0 … p3 with tied p1 give the buckets {p3, p2},
// {p1}, {p0}, if p3 is smaller than bucket_bytes. In the last backward, parameter_done() counts
// down the missing parameters of a bucket. At zero the bucket is final, and its sum over the copies
// may start while the backward goes on.
#include "executor/stage/gradient_buckets.h"

#include <algorithm>
#include <utility>

#include "executor/compile/lifetime.h"

namespace hetu {
namespace {

// The number that changes no other number to which it is added: +0 would change -0.
constexpr float kNothing = -0.0F;

}  // namespace

// Backward produces gradients from the last parameter to the first, so buckets are cut from the
// end. A tied parameter is a bucket of its own, because its other stage adds to it, too. So is a
// table whose gradient is stored by rows. Tables on parameter servers are in no bucket.
void GradientBuckets::make_weight_buckets() {
  bool joins = false;  // the last bucket may get further parameters
  for (int p = static_cast<int>(plan_.parameters.size()) - 1; p >= 0; --p) {
    const StageParameter& parameter = plan_.parameters[p];
    if (parameter.uses.empty() || parameter.served) continue;
    if (parameter.role != Parameter::Role::Weight) continue;
    float* data = sum_of(p);
    const std::int64_t padded = align_up(parameter.elements * 4) / 4;
    const bool by_rows = plan_.uses[parameter.uses[0]].width > 0;
    const bool alone =
        parameter.tied_pair != kNone || by_rows || (by_tree() && parameter.uses.size() > 1);
    if (joins && !alone && data + padded == buckets_.back().data &&
        buckets_.back().elements * 4 < how_.bucket_bytes) {
      buckets_.back().data = data;
      buckets_.back().elements += padded;
    } else {
      buckets_.push_back({data, parameter.elements, parameter.tied_pair, 0, 0});
      if (by_rows) buckets_.back().by_rows = p;
    }
    joins = !alone;
    ++buckets_.back().parameters;
    bucket_of_[p] = static_cast<int>(buckets_.size()) - 1;
  }
}

GradientBuckets::GradientBuckets(const StagePlan& plan, const StageMemory& memory, Device& device,
                                 How how)
    : plan_(plan),
      memory_(memory),
      device_(device),
      how_(how),
      bucket_of_(plan.parameters.size(), kNone) {
  if (by_tree()) trees_.assign(plan.uses.size(), SumTree(how.tree->total));
  make_weight_buckets();
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
    if (is_factor(static_cast<int>(u))) clear(static_cast<int>(u));
}

void GradientBuckets::clear(int use) {
  fresh_[use] = 1;
  if (by_tree()) trees_[use].clear();
}

void GradientBuckets::inverted(int parameter) {
  for (Range& bucket : buckets_)
    if (bucket.is_inverse && bucket.factor == parameter) bucket.made_here = true;
}

void GradientBuckets::begin_sums() {
  for (std::size_t u = 0; u < fresh_.size(); ++u)
    if (!is_factor(static_cast<int>(u))) clear(static_cast<int>(u));
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

// In a tree, a copy without micro-batches has no terms.
void GradientBuckets::clear_if_unused() {
  if (by_tree()) return;
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
    const bool later = by_tree() && has_holders(parameter);  // with the others' terms
    for (std::size_t u = 1; u < parameter.uses.size() && !later; ++u) {
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
    device_.queue().run([to = range.data, n = range.elements, fill = device_.kernels().fill](
                            AddressMap at) { fill(at(to), kNothing, n); });
  }
  if (device_.in_host_memory())
    return {DType::Float32,
            range.data,
            range.elements,
            {},
            range.by_rows == kNone ? TouchedRows() : rows_of(range.by_rows)};
  if (how_.direct) return {DType::Float32, range.data, range.elements, device_.queue().record()};
  range.host.resize(static_cast<std::size_t>(range.elements));
  device_.queue().download(range.host.data(), range.data, range.elements * 4);
  return {DType::Float32, range.host.data(), range.elements, device_.queue().record()};
}

void GradientBuckets::summed(const std::vector<int>& buckets) {
  if (device_.in_host_memory()) return;
  for (const int b : buckets) {
    if (!how_.direct)
      device_.queue().upload(buckets_[b].data, buckets_[b].host.data(), buckets_[b].elements * 4);
    if (buckets_[b].by_rows != kNone) changed(buckets_[b].by_rows);
  }
}

float* GradientBuckets::in_slot(int use, int slot) const {
  return memory_.floats(plan_.uses[use].accumulator) + slot * plan_.sum_stride / 4;
}

bool GradientBuckets::is_first(int use, int micro) const {
  return by_tree() ? !trees_[use].next(micro).adds : is_fresh(use);
}

Loc GradientBuckets::place(int use, int micro) const {
  Loc loc = plan_.uses[use].accumulator;
  if (by_tree()) loc.offset += trees_[use].next(micro).slot * plan_.sum_stride;
  return loc;
}

void GradientBuckets::append_state(int use, int micro, std::string& key) const {
  key += is_first(use, micro) ? '1' : '0';
  if (!by_tree()) return;
  const SumTree::Step step = trees_[use].next(micro);
  key += fmt::format("{}", step.slot);
  for (const auto& [to, from] : step.merges) key += fmt::format("+{},{}", to, from);
}

void GradientBuckets::merge(int use, int micro) {
  if (!by_tree()) return;
  const std::int64_t elements = plan_.parameters[plan_.uses[use].parameter].elements;
  for (const auto& [to, from] : trees_[use].next(micro).merges) {
    device_.queue().run(
        [sum = in_slot(use, to), more = static_cast<const float*>(in_slot(use, from)), elements,
         add = device_.kernels().add](AddressMap at) { add(at(sum), at(more), elements); });
  }
}

void GradientBuckets::filled(int use, int micro) {
  fresh_[use] = 0;
  if (by_tree()) trees_[use].add(micro);
}

bool GradientBuckets::has_holders(const StageParameter& parameter) const {
  return !parameter.other_stages.empty() || how_.tree->copies_of(plan_.stage) > 1;
}

std::vector<int> GradientBuckets::parameters_of(int bucket) const {
  std::vector<int> out;
  for (std::size_t p = 0; p < bucket_of_.size(); ++p)
    if (bucket_of_[p] == bucket) out.push_back(static_cast<int>(p));
  return out;
}

const void* GradientBuckets::term(int bucket, int use, int slot, std::int64_t elements) {
  float* const from = in_slot(use, slot);
  if (device_.in_host_memory() || how_.direct) return from;
  std::vector<float>& host = buckets_[bucket].terms[{use, slot}];
  host.resize(static_cast<std::size_t>(elements));
  device_.queue().download(host.data(), from, elements * 4);
  return host.data();
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
