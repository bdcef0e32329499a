#include "executor/loop/run_channel.h"

#include <algorithm>

#include "base/error.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

RunChannel::RunChannel(comm::Transport& transport, comm::Group group, std::size_t values)
    : transport_(transport), group_(std::move(group)), values_(values) {
  if (is_chief()) incoming_.resize(group_.size());
}

void RunChannel::begin(int first_step, const Limits& limits) {
  first_step_ = first_step;
  limits_ = limits;
  granted_ = std::min(limits.steps, limits.least);
  final_ = granted_ == limits.steps;
  summed_ = 0;
  for (Incoming& in : incoming_) in.posted = 0;
  if (!is_chief() && !final_) post_grant();
}

void RunChannel::send(int worker, int kind, std::vector<double> values) {
  // Frees the buffers of sends that are done.
  while (!outgoing_.empty() && outgoing_.front().request->done()) {
    transport_.wait(*outgoing_.front().request, "a report");
    outgoing_.pop_front();
  }
  outgoing_.push_back({nullptr, std::move(values)});
  Outgoing& out = outgoing_.back();
  out.request = transport_.send(worker, comm::make_tag(kind, 0, 0, 0, first_step_),
                                out.values.data(), out.values.size() * sizeof(double));
}

void RunChannel::grant(bool end) {
  grant_to(end ? granted_ : std::min(limits_.steps, granted_ + limits_.lead), end);
}

void RunChannel::grant_to(int steps, bool end) {
  HETU_ASSERT(is_chief() && !final_ && granted_ <= steps && steps <= limits_.steps);
  granted_ = steps;
  final_ = end || granted_ == limits_.steps;
  for (std::size_t w = 1; w < group_.size(); ++w)
    send(group_[w], kGrantTag, {static_cast<double>(granted_), final_ ? 1.0 : 0.0});
}

void RunChannel::post_grant() {
  grant_.assign(2, 0);
  grant_request_ = transport_.recv(group_.front(), comm::make_tag(kGrantTag, 0, 0, 0, first_step_),
                                   grant_.data(), grant_.size() * sizeof(double));
}

void RunChannel::hear(bool wait) {
  while (!final_ && (wait || grant_request_->done())) {
    transport_.wait(*grant_request_,
                    [&] { return fmt::format("the length of the run from step {}", first_step_); });
    granted_ = static_cast<int>(grant_[0]);
    final_ = grant_[1] != 0;
    wait = false;
    if (!final_) post_grant();
  }
}

void RunChannel::report(int step, std::vector<double> values) {
  HETU_ASSERT(values.size() == values_ && step < granted_);
  if (!is_chief())
    send(group_.front(), kReportTag, std::move(values));
  else
    incoming_[0].reports.push_back(std::move(values));
}

// Returns true if the worker's next report has been received.
bool RunChannel::take_report(std::size_t member, bool wait) {
  Incoming& in = incoming_[member];
  const int worker = group_[member];
  // The chief's own reports (member 0) need no message.
  if (member == 0 || !in.reports.empty()) return !in.reports.empty();
  if (!in.request) {
    // A receive is posted only for a granted step, because no report follows the last one.
    if (in.posted >= granted_) return false;
    in.values.assign(values_, 0);
    in.request = transport_.recv(worker, comm::make_tag(kReportTag, 0, 0, 0, first_step_),
                                 in.values.data(), values_ * sizeof(double));
    ++in.posted;
  }
  if (!wait && !in.request->done()) return false;
  transport_.wait(*in.request, [&] {
    return fmt::format("the results of worker {}, step {}", worker, first_step_ + in.posted - 1);
  });
  in.reports.push_back(std::move(in.values));
  in.request.reset();
  return true;
}

std::optional<std::vector<double>> RunChannel::next_sums(bool wait) {
  if (summed_ == granted_) return std::nullopt;
  bool all = true;
  for (std::size_t w = 0; w < incoming_.size(); ++w) all = take_report(w, wait) && all;
  if (!all) return std::nullopt;
  std::vector<double> sums(values_, 0);
  for (Incoming& in : incoming_) {
    for (std::size_t i = 0; i < values_; ++i) sums[i] += in.reports.front()[i];
    in.reports.pop_front();
  }
  ++summed_;
  return sums;
}

void RunChannel::finish() {
  for (Outgoing& out : outgoing_) transport_.wait(*out.request, "a report");
  outgoing_.clear();
}

}  // namespace hetu
