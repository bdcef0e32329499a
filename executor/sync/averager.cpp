// Averages weights while compute goes on. An average takes three steps:
// 1. After an update, begin() requests a group from the coordinator and returns.
// 2. When the answer comes, the averager's thread copies the weights and computes the mean with the
//    other members, bucket by bucket.
// 3. Before the next update, end() waits for the thread, and bring_into() writes the result into
//    the weights.
// A pipeline that requested the group doesn't update in between, so the mean replaces its weights
// (replaced_). The passive partner of AD-PSGD requested nothing and may have updated after it gave
// its weights. It is therefore moved by mean - given (moved_, shift_). For example, it gives 4, the
// mean is 3, and it has reached 5 meanwhile: it becomes 4.
// Source: Lian et al. 2018 (AD-PSGD); SD-PIPE for groups of those that are ready.
#include "executor/sync/averager.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "executor/device/threads.h"
#include "net/transport/tag_kinds.h"
#include "ops/tensor_kernels.h"

namespace hetu {

AverageOptions average_options(const groups::Options& policy, bool overlap) {
  AverageOptions options;
  options.policy = policy;
  options.overlap =
      overlap && !(policy.method == groups::Method::PartialReduce && policy.sync_period == 1);
  return options;
}

Averager::Averager(Membership& members, ps::GroupClient& client, AverageOptions options)
    : members_(members),
      reducer_(members.transport()),
      client_(client),
      options_(std::move(options)),
      known_(members.position().workers.size(), 0),
      known_before_(known_) {
  counts_.by_size.assign(known_.size() + 1, 0);
  members_.follow(reducer_);
  client_.on_news([this] {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_all();
  });
  thread_ = std::thread([this] { serve(); });
}

Averager::~Averager() {
  members_.unfollow(reducer_);
  client_.on_news({});
  reducer_.give_up();
  if (direct_) direct_->give_up();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Averager::go_direct(std::unique_ptr<DirectMeans> means) {
  HETU_ASSERT(options_.policy.method == groups::Method::PartialReduce && !members_.may_lose());
  direct_ = std::move(means);
}

void Averager::set_done(std::int64_t updates) {
  HETU_ASSERT(!open_);
  done_before_ = updates;
  updates_ = 0;
  known_.assign(known_.size(), updates);
}

void Averager::begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights) {
  done_before_ += updates_;
  updates_ = answered_ = 0;
  stop_after_ = groups::known_stop(options_.policy, updates);
  members_.begin_run();
  stops_soon_ = false;
  {
    const std::lock_guard lock(weights_mutex_);
    weights_ = weights;
    elements_ = weights.elements;
    replaced_ = moved_ = false;
    if (!direct_) mean_.resize(static_cast<std::size_t>(weights.elements));
    if (direct_ && !mean_there_) {
      HETU_ASSERT(weights.dtype() == DType::Float32);
      mean_there_ = weights.device->alloc_for(weights.bytes(), "an average of weights");
      weights.device->queue().record().wait();  // zeros are written by the queue
    }
  }
  {
    const std::lock_guard lock(mutex_);
    known_[members_.position().pipeline] = done_before_;
    known_before_ = known_;
  }
  client_.begin_run({done_before_, updates, step});
}

void Averager::stop_soon() {
  if (!std::exchange(stops_soon_, true)) client_.stop_soon();
}

void Averager::begin() {
  {
    const std::lock_guard lock(mutex_);
    HETU_ASSERT(!open_);
    if (error_) std::rethrow_exception(error_);
    open_ = true;
    done_ns_ = 0;
    ++updates_;
    known_[members_.position().pipeline] = done_before_ + updates_;
    if (direct_) updated_ = weights_.device->queue().mark();
  }
  client_.request(done_before_ + updates_);
}

std::string Averager::doing() const {
  return fmt::format("the average of stage {} after update {} of pipeline {}",
                     members_.position().stage, done_before_ + updates_,
                     members_.position().pipeline);
}

std::int64_t Averager::end() {
  std::unique_lock lock(mutex_);
  const double timeout_s = members_.transport().options().timeout_s;
  // The thread's own waits time out first and report more.
  const bool done = changed_.wait_for(lock, std::chrono::duration<double>(2 * timeout_s + 1),
                                      [&] { return error_ || done_ns_ != 0 || !open_; });
  if (error_) std::rethrow_exception(error_);
  if (!done)
    fail(Code::Timeout, "{}: no group was assigned within {:g} s", doing(), 2 * timeout_s + 1);
  if (answer_ && answer_->stop_after != groups::kRunsOn)
    stop_after_ = answer_->stop_after - done_before_;
  open_ = false;
  answered_ = updates_;
  return done_ns_;
}

std::int64_t Averager::average_now(const DeviceSpan& weights) {
  begin();
  const std::int64_t done_ns = end();
  const auto change = this->change();
  bring_into(weights);
  return done_ns;
}

// Copies the weights that this worker gives, including the shift of averages since the last update.
void Averager::snapshot(float* to) {
  const std::lock_guard lock(weights_mutex_);
  weights_.read(to);
  // Means are computed in host memory, because messages are there.
  if (moved_) cpu_tensor_kernels().add(to, shift_.data(), elements_);
}

void Averager::bring_into(const DeviceSpan& weights) {
  weights_ = weights;
  if (replaced_ && direct_)
    weights_.device->queue().copy(weights_.data, mean_there_.get(), weights_.bytes());
  if (replaced_ && !direct_) weights_.write(mean_.data());
  if (moved_) weights_.add(shift_.data());
  replaced_ = moved_ = false;
}

std::int64_t Averager::updates_of_all() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < known_.size(); ++d) sum += known_[d] - known_before_[d];
  return sum;
}

void Averager::note(const ps::Answer& group) {
  const std::lock_guard lock(mutex_);
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    std::int64_t& known = known_.at(group.members[m]);
    known = std::max(known, group.updates.at(m));
  }
  ++counts_.groups;
  counts_.members += static_cast<std::int64_t>(group.members.size());
  ++counts_.by_size.at(group.members.size());
}

GroupCounts Averager::take_counts() {
  const std::lock_guard lock(mutex_);
  GroupCounts counts = counts_;
  counts_ = {0, 0, std::vector<std::int64_t>(counts_.by_size.size(), 0)};
  return counts;
}

// Replaces every element by the sum over the group divided by its size, bucket by bucket. If
// members have weights, it is the weighted sum.
void Averager::mean_over(const comm::Group& group, const std::vector<Span>& spans, int kind,
                         std::int64_t number, comm::WaitPurpose what,
                         std::optional<double> weight) {
  struct Piece {
    Span span;
    std::shared_ptr<comm::Sum> sum;
  };
  const std::int64_t most = std::max<std::int64_t>(1, options_.bucket_bytes / 4);
  std::vector<Piece> buckets;
  for (const Span& span : spans) {
    for (std::int64_t at = 0; at < span.elements; at += most) {
      const Span part = {span.data + at, std::min(most, span.elements - at)};
      if (weight) cpu_tensor_kernels().scale(part.data, static_cast<float>(*weight), part.elements);
      // The tag contains all bits of the number, because messages of a sum that a death has broken
      // may stay in the queues for long.
      const comm::Tag tag =
          comm::make_tag(kind, members_.position().stage, static_cast<int>(buckets.size()),
                         static_cast<int>(number >> 14), static_cast<int>(number & 0x3fff));
      buckets.push_back(
          {part, reducer_.start_sum(group, DType::Float32, part.data, part.elements, tag)});
    }
  }
  for (const Piece& b : buckets) {
    reducer_.wait(*b.sum, what);
    if (!weight)
      cpu_tensor_kernels().scale(b.span.data, 1.0F / static_cast<float>(group.size()),
                                 b.span.elements);
  }
}

// Averages with a group. A pipeline that requested the group waits for the mean, which replaces its
// weights. An invited one (the passive partner of AD-PSGD) may have updated meanwhile, and moves by
// the difference between the mean and the weights that it gave.
void Averager::meet(const ps::Answer& group, bool invited) {
  note(group);
  if (group.members.size() < 2) return;
  const auto what = [&] {
    return fmt::format("{} with pipelines {}, group {}", doing(), fmt::join(group.members, ", "),
                       group.serial);
  };
  std::optional<double> weight;
  for (std::size_t m = 0; m < group.weights.size(); ++m) {
    if (group.members[m] == members_.position().pipeline) weight = group.weights[m];
  }
  if (direct_) return meet_direct(group, weight, what);
  const bool keep = invited || options_.observe;
  snapshot(mean_.data());
  if (keep) given_ = mean_;
  try {
    mean_over(members_.workers_of(group.members), {{mean_.data(), elements_}}, kAverageTag,
              group.serial, what, weight);
  } catch (const Error&) {
    if (!members_.is_broken(group.members)) throw;
    return;  // every member goes on with its own weights
  }
  if (options_.network_ns > 0)
    std::this_thread::sleep_for(std::chrono::nanoseconds(options_.network_ns));
  if (options_.observe) options_.observe({group, given_.data(), mean_.data(), elements_});
  const std::lock_guard lock(weights_mutex_);
  if (!invited) {
    replaced_ = true;
    return;
  }
  if (!moved_) shift_.assign(static_cast<std::size_t>(elements_), 0);
  cpu_tensor_kernels().add_difference(shift_.data(), mean_.data(), given_.data(), elements_);
  moved_ = true;
}

void Averager::meet_direct(const ps::Answer& group, std::optional<double> weight,
                           comm::WaitPurpose what) {
  auto* const mean = reinterpret_cast<float*>(mean_there_.get());
  if (options_.observe) given_ = weights_.values();
  direct_->make(
      {members_.workers_of(group.members), weights_.data, mean, elements_, weight, updated_},
      options_.bucket_bytes, what);
  if (options_.observe) {
    const DeviceSpan there{mean, elements_, weights_.device};
    options_.observe({group, given_.data(), there.values().data(), elements_});
  }
  const std::lock_guard lock(weights_mutex_);
  replaced_ = true;
}

// The thread of the averager. Its arithmetic uses one thread only, because compute needs the
// others.
void Averager::serve() {
  set_thread_count(1);
  try {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      rung_ = false;
      serving_ = true;
      const bool asked = open_ && done_ns_ == 0;
      lock.unlock();
      while (const auto invitation = client_.poll_invitation()) meet(*invitation, true);
      std::optional<ps::Answer> answer;
      if (asked) answer = client_.poll();
      if (answer) meet(*answer, false);
      lock.lock();
      serving_ = false;
      if (answer) {
        answer_ = std::move(answer);
        done_ns_ = comm::now_ns();
      }
      changed_.notify_all();
      changed_.wait(lock, [&] { return stop_ || rung_; });
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    serving_ = false;
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

// An initiator arrives here only after its partner has given its weights, so no request follows the
// barrier.
void Averager::end_run() {
  const auto what = [&] {
    return fmt::format("the end of run {} on stage {}", members_.runs(), members_.position().stage);
  };
  if (members_.may_lose()) {
    members_.rendezvous(true, false);
  } else {
    comm::barrier(members_.transport(), members_.position().workers,
                  {comm::make_tag(kConsensusTag, members_.position().stage, 0, 1,
                                  static_cast<int>(members_.runs() & 0x3fff)),
                   what});
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || (!serving_ && !rung_); });
    if (error_) std::rethrow_exception(error_);
  }
  const auto change = this->change();
  bring_into(weights_);
}

void Averager::consensus(const std::vector<DeviceSpan>& spans) {
  const auto what = [&] {
    return fmt::format("the consensus of stage {} after run {}", members_.position().stage,
                       members_.runs());
  };
  // A mean that a death may break, and that is then repeated, must not be computed in place.
  std::vector<std::vector<float>> means(spans.size());
  std::vector<Span> copies;
  const auto copy = [&](bool in_place) {
    copies.clear();
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const bool stays = in_place && spans[i].dtype() == DType::Float32;
      if (!stays) means[i] = spans[i].values();
      copies.push_back({stays ? spans[i].data : means[i].data(), spans[i].elements});
    }
  };
  if (!members_.may_lose()) {
    const auto on_host = [](const DeviceSpan& s) { return s.device->in_host_memory(); };
    copy(std::all_of(spans.begin(), spans.end(), on_host));
    mean_over(members_.position().workers, copies, kConsensusTag, members_.runs(), what);
  } else {
    members_.together("a consensus", [&] {
      copy(false);
      mean_over(members_.workers_of(members_.living()), copies, kConsensusTag,
                members_.rendezvous_count(), what);
    });
  }
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (!means[i].empty()) spans[i].write(means[i].data());
}

}  // namespace hetu
