// Sums of buckets. The tag of a sum holds kind, stage, part, bucket and step, so that members of a
// group may start their sums at different times.
#include "executor/sync/all_reduce.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

std::vector<comm::Slice> slices_of(const comm::Group& group,
                                   const std::vector<OwnedElements>& owners) {
  std::vector<comm::Slice> slices(group.size());
  std::int64_t at = 0;
  for (const OwnedElements& owned : owners) {
    const auto member = std::find(group.begin(), group.end(), owned.worker);
    HETU_ASSERT(member != group.end());
    slices[static_cast<std::size_t>(member - group.begin())] = {at, owned.count};
    at += owned.count;
  }
  return slices;
}

comm::Terms terms_of(const comm::Group& group, const Bucket& bucket) {
  comm::Terms terms;
  for (const Bucket::Term& term : bucket.terms) {
    const auto member = std::find(group.begin(), group.end(), term.worker);
    HETU_ASSERT(member != group.end());
    terms.members.push_back(static_cast<int>(member - group.begin()));
    terms.data.push_back(term.data);
  }
  terms.order = bucket.order;
  return terms;
}

}  // namespace

void AllReduce::follow(const Row& row) {
  Reductions found;
  for (const auto* part : {&row.prologue, &row.body, &row.drain}) {
    for (const Action& action : *part) {
      if (!carries_out(action.instr.kind) || find(found, action.instr) != nullptr) continue;
      found.push_back({&action, stages_.buckets(action.instr), 0, {}, 0});
    }
  }
  by_row_[&row] = std::move(found);
}

void AllReduce::forget(const Row& row) { by_row_.erase(&row); }

// Sums that a failed run left unfinished are abandoned.
void AllReduce::begin(const Row& row, int step, Note note) {
  note_ = std::move(note);
  step_ = step;
  reductions_ = &by_row_.at(&row);
  for (Reduction& r : *reductions_) {
    r.times = 0;
    r.sums.assign(r.buckets.size(), {});
    r.start_ns = 0;
  }
}

AllReduce::Reduction* AllReduce::find(Reductions& reductions, const Instr& instr) {
  for (Reduction& r : reductions) {
    const Instr& i = r.action->instr;
    if (i.kind == instr.kind && i.stage == instr.stage && i.part == instr.part) return &r;
  }
  return nullptr;
}

void AllReduce::start_sum(Reduction& reduction, std::size_t k) {
  if (reduction.sums[k].is_started()) return;
  if (reduction.start_ns == 0) reduction.start_ns = comm::now_ns();
  const Action& action = *reduction.action;
  const Bucket bucket = stages_.bucket(action.instr.stage, reduction.buckets[k]);
  const comm::Tag tag =
      comm::make_tag(static_cast<int>(action.instr.kind), action.tag_stage, static_cast<int>(k),
                     action.tag_part, step_ + reduction.times);
  const comm::Terms terms = terms_of(action.group, bucket);
  if (how_.direct != nullptr) {
    reduction.sums[k].direct = how_.direct->sum(action.group, tag, static_cast<float*>(bucket.data),
                                                bucket.count, bucket.ready, terms);
    return;
  }
  bucket.ready.wait();
  const std::int64_t count =
      how_.one_element ? std::min<std::int64_t>(1, bucket.count) : bucket.count;
  if (!terms.order.empty())
    reduction.sums[k].whole =
        reducer_.start_terms(action.group, bucket.dtype, bucket.data,
                             bucket.owners.empty() ? comm::even_slices(count, action.group.size())
                                                   : slices_of(action.group, bucket.owners),
                             terms, tag, !bucket.owners.empty());
  else if (!bucket.owners.empty())
    reduction.sums[k].whole = reducer_.start_scatter(action.group, bucket.dtype, bucket.data,
                                                     slices_of(action.group, bucket.owners), tag);
  else if (bucket.rows.bits != nullptr && !how_.one_element)
    reduction.sums[k].rows = std::make_shared<RowSum>(transport_, action.group, bucket, tag);
  else
    reduction.sums[k].whole =
        reducer_.start_sum(action.group, bucket.dtype, bucket.data, count, tag,
                           is_factor_exchange(action.instr.kind) ? DType::Float32 : how_.wire);
}

// Starts the sum of a final bucket, which belongs to the stage's next REDUCE_GRAD with this bucket.
void AllReduce::after_backward(const Action& at, int stage, int bucket) {
  if (!at.sums_follow) return;
  for (Reduction& r : *reductions_) {
    if (r.action->instr.stage != stage) continue;
    const auto found = std::find(r.buckets.begin(), r.buckets.end(), bucket);
    if (found == r.buckets.end()) continue;
    start_sum(r, static_cast<std::size_t>(found - r.buckets.begin()));
    return;
  }
}

void AllReduce::run_instruction(const Action& action, int /*step*/, std::int64_t now_ns) {
  Reduction* const found = find(*reductions_, action.instr);
  HETU_ASSERT(found != nullptr);  // follow() has seen the row that contains the instruction
  Reduction& r = *found;
  if (r.start_ns == 0) r.start_ns = now_ns;
  for (std::size_t k = 0; k < r.buckets.size(); ++k) start_sum(r, k);
  started_.push_back({action.instr, step_ + r.times, std::move(r.sums), r.start_ns});
  r.sums.assign(r.buckets.size(), {});
  r.start_ns = 0;
  ++r.times;
}

std::int64_t AllReduce::finish(const Sum& sum, comm::WaitPurpose what) {
  if (sum.direct) return how_.direct->wait(*sum.direct, what);
  if (sum.whole) return reducer_.wait(*sum.whole, what);
  sum.rows->finish(what);
  std::erase_if(sending_, [](const auto& sent) { return sent->is_sent(); });
  sending_.push_back(sum.rows);
  return comm::now_ns();
}

// Waits for all reductions that were reached: an update waits for every sum that its worker has
// started, as progress.h assumes.
void AllReduce::wait(int /*stage*/) {
  for (const Started& s : started_) finish(s);
  started_.clear();
}

// Waits for the last sum of a factor and all reductions reached before it.
void AllReduce::wait_for_factors() {
  const auto is_factor = [](const Started& s) { return is_factor_sync(s.instr.kind); };
  const auto last = std::find_if(started_.rbegin(), started_.rend(), is_factor).base();
  for (auto s = started_.begin(); s != last; ++s) finish(*s);
  started_.erase(started_.begin(), last);
}

void AllReduce::finish(const Started& s) {
  std::int64_t done_ns = s.start_ns;
  for (const auto& sum : s.sums)
    done_ns = std::max(done_ns, finish(sum, [&] { return describe(s.instr, s.step); }));
  const std::int64_t end_ns = stages_.synchronised(s.instr, done_ns);
  note_(s.instr, s.step, s.start_ns, end_ns);
}

}  // namespace hetu
