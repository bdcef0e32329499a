#include "executor/comm/linked.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>

#include "executor/comm/linked_transport.h"
#include "graph/base/error.h"
#include "graph/base/log.h"

namespace hetu::comm {

std::vector<std::byte> make_frame(const Header& header, const void* data, std::size_t bytes) {
  std::vector<std::byte> frame(sizeof header + bytes);
  std::memcpy(frame.data(), &header, sizeof header);
  if (bytes > 0) std::memcpy(frame.data() + sizeof header, data, bytes);
  return frame;
}

Linked::Linked(std::shared_ptr<Wire> wire, Joined joined, const Options& options)
    : Transport(joined.roster.worker, static_cast<int>(joined.roster.hosts.size()), options),
      wire_(std::move(wire)),
      roster_(std::move(joined.roster)),
      bell_(std::move(joined.bell)),
      local_(workers()),
      mailbox_(workers()),
      left_(workers()),
      to_ring_(workers(), 0),
      left_at_(workers(), 0) {
  for (int w = 0; w < workers(); ++w) {
    // A bell that cannot be rung (another container, say) makes its worker remote, whatever the
    // names.
    local_[w] = w == worker() || (options.local_doorbells && same_clock(w) && bell_->ring(w));
  }
}

// An exception that passes belongs to whoever catches it: the others are told, the process goes on.
Linked::~Linked() {
  if (std::uncaught_exceptions() > exceptions_) {
    give_up("an exception ends its program");
    return;
  }
  try {
    leave("");
  } catch (const Error& e) {  // nobody else is left to say it
    abort(exit_status(e.code()), e.what());
  }
}

bool Linked::end_thread() {
  const std::lock_guard one_at_a_time(ending_);
  if (!thread.joinable()) return false;
  leave_.store(true);
  bell_->wake();
  thread.join();
  return true;
}

void Linked::leave(const std::string& note) {
  {
    const std::lock_guard lock(mutex_);
    if (!leave_.load()) note_ = note;
  }
  if (!end_thread()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) fail(broken_code_, "{}", broken_);
  }
  break_links("this worker has left the job", Code::Comm);
}

void Linked::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (leave_.load()) return;
    note_ = reason;
  }
  gives_up_.store(true);
  end_thread();
}

void Linked::abort(int status, const std::string& reason) {
  if (!reason.empty()) log(Level::Error, "worker {} ends the job: {}", worker(), reason);
  const int nonzero = status == 0 ? exit_status(Code::Internal) : status;
  end_status_.store(nonzero);
  bell_->wake();
  // The progress thread ends the process; should it hang in the wire, this does.
  if (thread.joinable()) std::this_thread::sleep_for(std::chrono::seconds(5));
  std::_Exit(nonzero);
}

void Linked::post(Request& request) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) {
    request.complete(broken_);
    return;
  }
  const int peer = request.peer();  // the request may be gone once it is complete
  const bool pending = peer == worker()    ? post_own(request)
                       : request.is_send() ? post_send(request)
                                           : post_receive(request);
  if (pending && !local_[peer]) {
    remote_pending_.fetch_add(1);
    bell_->wake();  // from now on the progress thread must look for itself
  }
}

// Each returns whether the request is still pending.
bool Linked::post_own(Request& request) {
  if (!request.is_send()) {
    std::optional<Arrival> arrival = mailbox_.take_arrival(worker(), request.tag());
    if (!arrival) {
      mailbox_.add_receive(request);
      return true;
    }
    Request* sender = arrival->sender;
    deliver(request, sender ? sender->source() : arrival->copy.data(), arrival->bytes);
    if (sender) end(*sender);
    return false;
  }
  if (Request* receive = mailbox_.take_receive(worker(), request.tag())) {
    deliver(*receive, request.source(), request.bytes());
    request.complete();
    return false;
  }
  Arrival arrival;
  arrival.tag = request.tag();
  arrival.bytes = request.bytes();
  const bool is_long = request.bytes() > options().inline_bytes;
  if (is_long) {
    arrival.sender = &request;
  } else {
    arrival.copy.assign(request.source(), request.source() + request.bytes());
  }
  mailbox_.add_arrival(worker(), std::move(arrival));
  if (!is_long) request.complete();
  return is_long;
}

bool Linked::post_send(Request& send) {
  Header header;
  header.tag = send.tag();
  header.bytes = send.bytes();
  Command command;
  command.peer = send.peer();
  if (send.bytes() <= options().inline_bytes) {
    command.frame = make_frame(header, send.source(), send.bytes());
    queue(std::move(command));
    send.complete();
    return false;
  }
  header.kind = FrameKind::Announce;
  header.sequence = ++sequence_;
  if (!left_[send.peer()].empty()) {
    send.complete(left_[send.peer()]);
    return false;
  }
  announced_[header.sequence] = &send;
  command.frame = make_frame(header);
  queue(std::move(command));
  return true;
}

bool Linked::post_receive(Request& receive) {
  std::optional<Arrival> arrival = mailbox_.take_arrival(receive.peer(), receive.tag());
  // What one that has left had only announced, it has taken back.
  if (const std::string& left = left_[receive.peer()];
      !left.empty() && (!arrival || arrival->announced)) {
    receive.complete(left);
    return false;
  }
  if (!arrival) {
    mailbox_.add_receive(receive);
    return true;
  }
  if (!arrival->announced || arrival->bytes != receive.bytes()) {
    deliver(receive, arrival->copy.data(), arrival->bytes);
    return false;
  }
  Header header;
  header.kind = FrameKind::Grant;
  header.sequence = arrival->sequence;
  Command command;
  command.peer = receive.peer();
  command.frame = make_frame(header);
  command.receive = &receive;
  command.sequence = arrival->sequence;
  queue(std::move(command));
  return true;
}

// Completes a receive that has never been pending, or was taken from the mailbox by `end`'s caller.
bool Linked::deliver(Request& receive, const std::byte* from, std::size_t bytes) {
  std::string error = size_error(worker(), receive.bytes(), receive.peer(), bytes);
  if (error.empty() && bytes > 0) std::memcpy(receive.target(), from, bytes);
  receive.complete(std::move(error));
  return true;
}

void Linked::queue(Command command) {
  const bool first = commands_.empty();
  commands_.push_back(std::move(command));
  if (first) bell_->wake();
}

void Linked::end(Request& request, std::string error) {
  if (!local_[request.peer()]) remote_pending_.fetch_sub(1);
  request.complete(std::move(error));
}

void Linked::cancel(Request& request) {
  {
    const std::lock_guard lock(mutex_);
    bool found =
        request.is_send()
            ? std::erase_if(announced_,
                            [&](const auto& entry) { return entry.second == &request; }) > 0 ||
                  mailbox_.remove_sender(worker(), request)
            : mailbox_.remove_receive(request);
    found |= std::erase_if(commands_, [&](const Command& c) { return c.receive == &request; }) > 0;
    if (found) {
      if (!local_[request.peer()]) remote_pending_.fetch_sub(1);
      return;
    }
  }
  // The wire holds the buffer: it must not go away before the message is through.
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(options().timeout_s * kSecond);
  while (!request.done() && now_ns() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!request.done()) {
    abort(exit_status(Code::Timeout), fmt::format("a message of {} bytes with worker {} was given "
                                                  "up in the middle and does not end",
                                                  request.bytes(), request.peer()));
  }
}

std::string Linked::ask_position(int peer) {
  if (peer == worker()) return own_position();
  const std::lock_guard one_at_a_time(asking_);
  std::unique_lock lock(mutex_);
  answer_.clear();
  Header header;
  header.kind = FrameKind::Ask;
  Command command;
  command.peer = peer;
  command.frame = make_frame(header);
  queue(std::move(command));
  answered_.wait_for(lock, std::chrono::seconds(1), [&] { return !answer_.empty(); });
  return answer_;
}

namespace {

// The start of the progress thread: joins the job, then waits for the object that it serves.
void join_and_run(const std::shared_ptr<Wire>& wire, std::size_t frame_bytes,
                  std::promise<Joined> joined, std::future<Linked*> transport) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // sleeps of 50 us must not become 100
  try {
    Joined result;
    result.roster = wire->open(frame_bytes);
    result.bell = std::make_unique<Doorbell>(result.roster.job, result.roster.worker);
    wire->barrier();
    joined.set_value(std::move(result));
  } catch (...) {
    joined.set_exception(std::current_exception());
    return;
  }
  transport.get()->run();
}

}  // namespace

std::unique_ptr<Transport> link_workers(std::unique_ptr<Wire> wire, const Options& options) {
  const std::shared_ptr<Wire> shared = std::move(wire);
  std::promise<Joined> joined;
  std::future<Joined> result = joined.get_future();
  std::promise<Linked*> transport;
  // Signals are for the threads of the program, not for this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(join_and_run, shared, sizeof(Header) + options.inline_bytes, std::move(joined),
                     transport.get_future());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (result.wait_for(std::chrono::duration<double>(options.timeout_s)) !=
      std::future_status::ready) {
    thread.detach();
    fail(Code::Timeout, "the workers did not come together within {:g} s", options.timeout_s);
  }
  std::unique_ptr<Linked> linked;
  try {
    linked = std::make_unique<Linked>(shared, result.get(), options);
  } catch (...) {
    thread.detach();
    throw;
  }
  linked->thread = std::move(thread);
  transport.set_value(linked.get());
  return linked;
}

}  // namespace hetu::comm
