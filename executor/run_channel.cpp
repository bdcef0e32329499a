#include "executor/run_channel.h"

#include <algorithm>

#include "executor/comm/tag_kinds.h"
#include "graph/base/error.h"

namespace hetu {
namespace {}  // namespace

RunChannel::RunChannel(comm::Transport& transport, std::size_t values)
    : transport_(transport), values_(values) {
  if (transport.worker() == 0) incoming_.resize(transport.workers());
}

void RunChannel::begin(int first_step, const Limits& limits) {
  first_step_ = first_step;
  limits_ = limits;
  granted_ = std::min(limits.steps, limits.least);
  final_ = granted_ == limits.steps;
  summed_ = 0;
  for (Incoming& in : incoming_) in.posted = 0;
  if (transport_.worker() != 0 && !final_) post_grant();
}

void RunChannel::send(int worker, int kind, std::vector<double> values) {
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
  HETU_ASSERT(transport_.worker() == 0 && !final_);
  if (!end) granted_ = std::min(limits_.steps, granted_ + limits_.lead);
  final_ = end || granted_ == limits_.steps;
  for (int w = 1; w < transport_.workers(); ++w)
    send(w, kGrantTag, {static_cast<double>(granted_), final_ ? 1.0 : 0.0});
}

void RunChannel::post_grant() {
  grant_.assign(2, 0);
  grant_request_ = transport_.recv(0, comm::make_tag(kGrantTag, 0, 0, 0, first_step_),
                                   grant_.data(), grant_.size() * sizeof(double));
}

void RunChannel::hear(bool wait) {
  while (!final_ && (wait || grant_request_->done())) {
    transport_.wait(*grant_request_, [&] {
      return fmt::format("how long the run from step {} goes on", first_step_);
    });
    granted_ = static_cast<int>(grant_[0]);
    final_ = grant_[1] != 0;
    wait = false;
    if (!final_) post_grant();
  }
}

void RunChannel::report(int step, std::vector<double> values) {
  HETU_ASSERT(values.size() == values_ && step < granted_);
  if (transport_.worker() != 0)
    send(0, kReportTag, std::move(values));
  else
    incoming_[0].reports.push_back(std::move(values));
}

// Whether the worker's next report is in.
bool RunChannel::take_report(int worker, bool wait) {
  Incoming& in = incoming_[worker];
  if (worker == 0 || !in.reports.empty()) return !in.reports.empty();
  if (!in.request) {
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
  for (std::size_t w = 0; w < incoming_.size(); ++w)
    all = take_report(static_cast<int>(w), wait) && all;
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
