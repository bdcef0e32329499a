// The transport between processes. link_workers starts the progress thread, which opens the wire.
// Once all workers have joined, the constructor of Linked receives the roster, and the thread
// enters its loop (progress_thread.h). A job can end in three ways:
//
//   leave     orderly: says Bye, and waits until all workers have said it; closes the wire
//   give_up   cannot continue: sends the reason to all workers, and returns at once
//   abort     no caller can handle the error: ends this process. The reason is sent to the others
//             first, unless the wire ends them, too (MPI).
#include "net/transport/linked.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "net/transport/progress_thread.h"

namespace hetu::comm {

namespace {

// In seconds; the rendezvous has its own deadline, and its error names the missing ranks.
constexpr double kGrace_s = 2;

/// The state of the progress thread once it has joined the job.
struct Joined {
  Roster roster;
  std::unique_ptr<Doorbell> bell;
};

class Linked final : public Transport {
 public:
  Linked(std::shared_ptr<Wire> wire, Joined joined, const Options& options);
  ~Linked() override;

  const std::string& host_of(int worker) const override { return peers_.roster.hosts.at(worker); }
  bool same_clock(int worker) const override {
    return peers_.roster.domains.at(worker) == peers_.roster.domains[this->worker()];
  }
  void abort(int status, const std::string& reason) override;
  void leave(const std::string& note) override;
  void give_up(const std::string& reason) override;

  ProgressThread& progress() { return progress_; }
  std::thread thread;  // runs progress()

 protected:
  void post(Request& request) override { matching_.post(request); }
  void cancel(Request& request) override;
  std::string ask_position(int peer) override {
    return peer == worker() ? own_position() : matching_.ask(peer);
  }

 private:
  bool end_thread();
  void hear_out() const;

  const std::shared_ptr<Wire> wire_;
  Peers peers_;
  Matching matching_;
  ProgressThread progress_;
  std::mutex ending_;
  const int exceptions_ = std::uncaught_exceptions();  // exceptions that propagated at construction
};

Linked::Linked(std::shared_ptr<Wire> wire, Joined joined, const Options& options)
    : Transport(joined.roster.worker, static_cast<int>(joined.roster.hosts.size()), options),
      wire_(std::move(wire)),
      peers_{std::move(joined.roster), std::move(joined.bell), options},
      matching_(peers_),
      progress_(*wire_, peers_, matching_, [this] { return own_position(); }) {
  for (int w = 0; w < workers(); ++w) {
    // A doorbell may be out of reach although the domains are equal (in another container, for
    // example). Its worker then counts as remote. A wire with a descriptor wakes its threads
    // itself, so no polling is needed.
    peers_.local.push_back(w == worker() || wire_->descriptor() >= 0 ||
                           (options.local_doorbells && same_clock(w) && peers_.bell->ring(w)));
  }
}

// A propagating exception belongs to the code that catches it. So the destructor notifies the other
// workers and lets the process continue.
Linked::~Linked() {
  if (std::uncaught_exceptions() > exceptions_) {
    give_up("an exception ended its program");
    hear_out();
    return;
  }
  try {
    leave("");
  } catch (const Error& e) {  // no other code is left to report it
    hear_out();
    abort(exit_status(e.code()), e.what());
  }
}

// A worker that has given up reports its reason itself within a moment. The end of this process
// would end that worker too, so this one waits.
void Linked::hear_out() const {
  if (progress_.others_gave_up()) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Returns false if the thread was ended before.
bool Linked::end_thread() {
  const std::lock_guard one_at_a_time(ending_);
  if (!thread.joinable()) return false;
  progress_.leave();
  thread.join();
  return true;
}

void Linked::leave(const std::string& note) {
  progress_.set_note(note);
  if (!end_thread()) return;
  matching_.check();
  progress_.break_links("this worker has left the job", Code::Comm);
}

void Linked::give_up(const std::string& reason) {
  if (!progress_.set_note(reason)) return;
  progress_.give_up();
  end_thread();
}

void Linked::abort(int status, const std::string& reason) {
  if (!reason.empty()) log(Level::Error, "worker {} ends the job: {}", worker(), reason);
  const int nonzero = status == 0 ? exit_status(Code::Internal) : status;
  progress_.set_note(reason);
  progress_.end_process(nonzero);
  // The progress thread ends the process. This call does it if that thread hangs in the wire.
  if (thread.joinable()) std::this_thread::sleep_for(std::chrono::seconds(5));
  std::_Exit(nonzero);
}

void Linked::cancel(Request& request) {
  if (matching_.withdraw(request)) return;
  // The wire holds the buffer, which must stay valid until the message is complete.
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(options().timeout_s * kSecond);
  while (!request.done() && now_ns() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!request.done()) {
    abort(exit_status(Code::Timeout), fmt::format("a message of {} bytes to or from worker {} was "
                                                  "cancelled in the middle and did not end",
                                                  request.bytes(), request.peer()));
  }
}

// Body of the progress thread: joins the job, then waits for the object that it serves.
void join_and_run(const std::shared_ptr<Wire>& wire, std::size_t frame_bytes,
                  std::promise<Joined> joined, std::future<Linked*> transport) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // keeps sleeps of 50 us from taking 100 us
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
  transport.get()->progress().run();
}

}  // namespace

std::unique_ptr<Transport> link_workers(std::unique_ptr<Wire> wire, const Options& options) {
  const std::shared_ptr<Wire> shared = std::move(wire);
  std::promise<Joined> joined;
  std::future<Joined> result = joined.get_future();
  std::promise<Linked*> transport;
  // Signals are for the threads of the program. The progress thread inherits a full mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(join_and_run, shared, sizeof(Header) + options.inline_bytes, std::move(joined),
                     transport.get_future());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::duration<double>(options.timeout_s + (options.met ? kGrace_s : 0));
  while (result.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready) {
    try {
      if (options.while_waiting) options.while_waiting();
      if (std::chrono::steady_clock::now() >= until)
        fail(Code::Timeout, "the workers did not connect within {:g} s", options.timeout_s);
    } catch (...) {
      thread.detach();
      throw;
    }
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
