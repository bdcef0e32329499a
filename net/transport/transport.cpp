#include "net/transport/transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace hetu::comm {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool Request::done() const {
  const std::lock_guard lock(signal_->mutex);
  return state_ != State::Pending;
}

bool Request::failed() const {
  const std::lock_guard lock(signal_->mutex);
  return state_ == State::Failed;
}

std::int64_t Request::completed_ns() const {
  const std::lock_guard lock(signal_->mutex);
  return completed_ns_;
}

void Request::complete(std::string error) {
  // Notifies under the lock, because a waiting thread may destroy this request as soon as the lock
  // is free.
  const std::lock_guard lock(signal_->mutex);
  state_ = error.empty() ? State::Done : State::Failed;
  error_ = std::move(error);
  completed_ns_ = now_ns();
  ++signal_->count;
  signal_->changed.notify_all();
}

Request::~Request() {
  if (!done()) owner_.cancel(*this);
}

void Transport::check_peer(int peer) const {
  require(peer >= 0 && peer < workers_, "worker {}: there is no worker {}; workers are 0 to {}",
          worker_, peer, workers_ - 1);
}

void Transport::carry_one_byte(int kind) {
  HETU_ASSERT(kind >= 0 && kind < 64);
  one_byte_ |= std::uint64_t{1} << kind;
}

std::size_t Transport::carried(Tag tag, std::size_t bytes) const {
  const bool one = (one_byte_ >> (tag >> 57 & 63) & 1) != 0;
  return one ? std::min<std::size_t>(1, bytes) : bytes;
}

std::unique_ptr<Request> Transport::send(int peer, Tag tag, const void* data, std::size_t bytes,
                                         Signal* signal) {
  check_peer(peer);
  std::unique_ptr<Request> request(new Request(*this, true, peer, tag, signal));
  request->source_ = static_cast<const std::byte*>(data);
  request->bytes_ = carried(tag, bytes);
  post(*request);
  return request;
}

std::unique_ptr<Request> Transport::recv(int peer, Tag tag, void* data, std::size_t bytes,
                                         Signal* signal) {
  check_peer(peer);
  std::unique_ptr<Request> request(new Request(*this, false, peer, tag, signal));
  request->target_ = static_cast<std::byte*>(data);
  request->bytes_ = carried(tag, bytes);
  if (request->bytes_ < bytes) std::memset(data, 0, bytes);
  post(*request);
  return request;
}

void Transport::wait(Request& request, WaitPurpose what) {
  bool ended = false;
  {
    std::unique_lock lock(request.signal_->mutex);
    ended = request.signal_->changed.wait_for(
        lock, std::chrono::duration<double>(options_.timeout_s),
        [&] { return request.state_ != Request::State::Pending; });
  }
  if (!ended) timed_out(request, what);
  check(request, what);
}

void Transport::check(Request& request, WaitPurpose what) {
  const std::lock_guard lock(request.signal_->mutex);
  if (request.state_ != Request::State::Failed) return;
  fail(Code::Comm, "worker {} in {}: {}", worker_, what.text(), request.error_);
}

void Transport::timed_out(const Request& request, WaitPurpose what) {
  const std::string position = ask_position(request.peer_);
  fail(Code::Timeout, "worker {} waited {:g} s for {} {} worker {}; worker {} {}", worker_,
       options_.timeout_s, what.text(), request.is_send_ ? "to" : "from", request.peer_,
       request.peer_,
       position.empty() ? "did not report its position" : "last reported " + position);
}

void Transport::set_reporter(std::function<std::string()> reporter) {
  const std::lock_guard lock(reporter_mutex_);
  reporter_ = std::move(reporter);
}

std::string Transport::own_position() {
  const std::lock_guard lock(reporter_mutex_);
  return reporter_ ? reporter_() : "nothing";
}

std::string Transport::size_error(int receiver, std::size_t expected, int sender,
                                  std::size_t sent) {
  if (expected == sent) return {};
  return fmt::format("worker {} expects {} bytes from worker {}, which sent {} bytes", receiver,
                     expected, sender, sent);
}

}  // namespace hetu::comm
