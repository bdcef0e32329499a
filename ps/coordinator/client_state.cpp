#include "ps/coordinator/client_state.h"

#include <algorithm>
#include <chrono>

namespace hetu::ps {

ClientState::ClientState(ClientOptions options) : options_(std::move(options)) {}

std::string ClientState::who() const {
  return fmt::format("worker {} (pipeline {}, stage {})", options_.worker, options_.pipeline,
                     options_.stage);
}

void ClientState::throw_if_dead() const {
  if (dead_) throw Error(code_, failure_);
}

void ClientState::begin_run(const RunStart& run) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
    require(!open_, "{} began a run while its request was open; take the answer first", who());
  }
  post(encode(FromWorker(BeginRun{run})));
}

void ClientState::request(std::int64_t update) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
    require(!open_,
            "{} asked for a group for update {} while a request was open; take its answer "
            "first",
            who(), update);
    open_ = true;
  }
  post(encode(FromWorker(Ask{update})));
}

void ClientState::stop_soon() {
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
  }
  post(encode(FromWorker(StopSoon{})));
}

std::optional<Answer> ClientState::poll() {
  const std::lock_guard lock(mutex_);
  throw_if_dead();
  std::optional<Answer> answer = std::move(answer_);
  answer_.reset();
  if (answer) open_ = false;
  return answer;
}

std::optional<Answer> ClientState::poll_invitation() {
  const std::lock_guard lock(mutex_);
  throw_if_dead();
  if (invitations_.empty()) return std::nullopt;
  Answer first = std::move(invitations_.front());
  invitations_.pop_front();
  return first;
}

Answer ClientState::wait(const std::function<std::string()>& what) {
  std::unique_lock lock(mutex_);
  require(open_ || dead_, "{} waits for a group without having asked for one", who());
  const auto limit = std::chrono::duration<double>(options_.timeout_s);
  if (!changed_.wait_for(lock, limit, [&] { return dead_ || answer_.has_value(); })) {
    fail(Code::Timeout, "{} waited {:g} s for the coordinator to assign its averaging group ({})",
         who(), options_.timeout_s, what ? what() : "no details are known");
  }
  throw_if_dead();
  Answer answer = std::move(*answer_);
  answer_.reset();
  open_ = false;
  return answer;
}

void ClientState::on_news(std::function<void()> ring) {
  const std::lock_guard lock(ring_mutex_);
  ring_ = std::move(ring);
}

std::vector<Lost> ClientState::lost_pipelines() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

Rendezvous ClientState::rendezvous(bool ok, bool flag, const std::function<std::string()>& what) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
  }
  post(encode(FromWorker(Arrive{ok, flag})));
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::duration<double>(options_.timeout_s);
  if (!changed_.wait_for(lock, limit, [&] { return dead_ || rendezvous_.has_value(); })) {
    fail(Code::Timeout, "{} waited {:g} s for the other pipelines in {}", who(), options_.timeout_s,
         what ? what() : "a rendezvous");
  }
  throw_if_dead();
  Rendezvous all = std::move(*rendezvous_);
  rendezvous_.reset();
  return all;
}

std::vector<std::string> ClientState::endpoints() {
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::duration<double>(options_.timeout_s);
  if (!changed_.wait_for(lock, limit, [&] { return dead_ || !endpoints_.empty(); })) {
    fail(Code::Timeout, "{} waited {:g} s for its copies in the other pipelines to start", who(),
         options_.timeout_s);
  }
  throw_if_dead();
  return endpoints_;
}

void ClientState::on_lost(std::function<void(int pipeline)> lost) {
  const std::lock_guard ring_lock(ring_mutex_);
  on_lost_ = std::move(lost);
  if (!on_lost_) return;
  for (const Lost& before : lost_pipelines()) on_lost_(before.pipeline);
  const std::lock_guard lock(mutex_);
  if (dead_) on_lost_(options_.pipeline);
}

void ClientState::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_ || dead_ || !welcome_) return;
    left_ = true;
  }
  post(encode(FromWorker(Leave{})));
  std::unique_lock lock(mutex_);
  // The worker may return immediately over another connection, and nothing else orders the two.
  // Without an answer, the coordinator notices this worker's silence.
  const std::chrono::duration<double> limit(std::min(options_.timeout_s, kDeadAfterS));
  changed_.wait_for(lock, limit, [&] { return dead_ || leave_ended_; });
}

void ClientState::greet() {
  post(encode(FromWorker(Hello{options_})));
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::duration<double>(options_.timeout_s);
  if (!changed_.wait_for(lock, limit, [&] { return dead_ || welcome_; })) {
    fail(Code::Timeout, "the coordinator did not answer {} in {:g} s (HETU_TIMEOUT)", who(),
         options_.timeout_s);
  }
  throw_if_dead();
}

void ClientState::take(const std::byte* data, std::size_t bytes) {
  try {
    take_message(decode_from_coordinator(data, bytes));
  } catch (const Error& error) {
    die(Code::Comm, fmt::format("{} received an invalid message from the coordinator: {}", who(),
                                error.what()));
  }
}

void ClientState::take_message(const FromCoordinator& message) {
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Left>(message)) return stop_leaving();
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    die(refusal->code, refusal->text);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (std::holds_alternative<Welcome>(message)) {
      welcome_ = true;
    } else if (const auto* lost = std::get_if<Lost>(&message)) {
      const auto before = [](const Lost& a, const Lost& b) { return a.pipeline < b.pipeline; };
      lost_.insert(std::lower_bound(lost_.begin(), lost_.end(), *lost, before), *lost);
    } else if (const auto* rendezvous = std::get_if<Rendezvous>(&message)) {
      rendezvous_ = *rendezvous;
    } else if (const auto* endpoints = std::get_if<Endpoints>(&message)) {
      endpoints_ = endpoints->by_pipeline;
    } else {
      const Answer& answer = std::get<Answer>(message);
      // AD-PSGD: another pipeline's request. The own request, if any, stays open.
      if (answer.initiator >= 0 && answer.initiator != options_.pipeline) {
        invitations_.push_back(answer);
      } else {
        answer_ = answer;
      }
    }
  }
  changed_.notify_all();
  const std::lock_guard lock(ring_mutex_);
  const auto* lost = std::get_if<Lost>(&message);
  if (lost != nullptr && on_lost_) on_lost_(lost->pipeline);
  if (ring_) ring_();
}

void ClientState::die(Code code, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return;
    dead_ = true;
    code_ = code;
    failure_ = text;
  }
  changed_.notify_all();
  const std::lock_guard lock(ring_mutex_);
  if (on_lost_) on_lost_(options_.pipeline);
  if (ring_) ring_();
}

bool ClientState::welcome() const {
  const std::lock_guard lock(mutex_);
  return welcome_;
}

void ClientState::stop_leaving() {
  {
    const std::lock_guard lock(mutex_);
    leave_ended_ = true;
  }
  changed_.notify_all();
}

bool ClientState::has_left() const {
  const std::lock_guard lock(mutex_);
  return left_ || dead_;
}

}  // namespace hetu::ps
