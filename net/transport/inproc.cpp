#include "net/transport/inproc.h"

#include <cstring>

#include "base/error.h"
#include "net/transport/mailbox.h"

namespace hetu::comm {
namespace {

class Inproc;

// The state that all workers share. A box belongs to the receiving worker and is guarded by the
// box's mutex.
struct World {
  struct Box {
    explicit Box(int workers) : mailbox(workers) {}
    std::mutex mutex;
    Mailbox mailbox;
    std::string broken;  // why the job has ended; empty while it runs
    Inproc* owner = nullptr;
  };
  std::vector<std::unique_ptr<Box>> boxes;
};

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class Inproc final : public Transport {
 public:
  Inproc(std::shared_ptr<World> world, int worker, int workers, const Options& options)
      : Transport(worker, workers, options), world_(std::move(world)) {
    box(worker).owner = this;
  }
  ~Inproc() override {
    World::Box& own = box(worker());
    const std::lock_guard lock(own.mutex);
    own.owner = nullptr;
  }

  const std::string& host_of(int) const override { return host_; }
  bool same_clock(int) const override { return options().local_doorbells; }

  void abort(int, const std::string& reason) override {
    for (auto& each : world_->boxes) {
      const std::lock_guard lock(each->mutex);
      if (!each->broken.empty()) continue;
      each->broken = fmt::format("worker {} ended the job: {}", worker(), reason);
      for (Request* request : each->mailbox.clear()) request->complete(each->broken);
    }
  }

 protected:
  void post(Request& request) override {
    // All work for one message, including the copy, happens under the lock of its receiver. Neither
    // buffer can therefore be withdrawn during the copy.
    World::Box& b = box(request.is_send() ? request.peer() : worker());
    const std::lock_guard lock(b.mutex);
    if (!b.broken.empty()) {
      request.complete(b.broken);
    } else if (request.is_send()) {
      post_send(b, request);
    } else {
      post_receive(b, request);
    }
  }

  void cancel(Request& request) override {
    World::Box& b = box(request.is_send() ? request.peer() : worker());
    const std::lock_guard lock(b.mutex);
    if (request.is_send()) {
      b.mailbox.remove_sender(worker(), request);
    } else {
      b.mailbox.remove_receive(request);
    }
  }

  std::string ask_position(int peer) override {
    World::Box& b = box(peer);
    const std::lock_guard lock(b.mutex);
    return b.owner ? b.owner->own_position() : "that it has ended";
  }

 private:
  World::Box& box(int worker) { return *world_->boxes[worker]; }

  void post_send(World::Box& b, Request& send) {
    Request* receive = b.mailbox.take_receive(worker(), send.tag());
    if (receive) {
      deliver(*receive, send.source(),
              size_error(send.peer(), receive->bytes(), worker(), send.bytes()));
      send.complete();
    } else if (send.bytes() <= options().inline_bytes) {
      b.mailbox.add_arrival(
          worker(), {send.tag(), send.bytes(), {send.source(), send.source() + send.bytes()}});
      send.complete();
    } else {
      Arrival arrival;
      arrival.tag = send.tag();
      arrival.bytes = send.bytes();
      arrival.sender = &send;
      arrival.announced = true;
      b.mailbox.add_arrival(worker(), std::move(arrival));
    }
  }

  void post_receive(World::Box& b, Request& receive) {
    std::optional<Arrival> arrival = b.mailbox.take_arrival(receive.peer(), receive.tag());
    if (!arrival) {
      b.mailbox.add_receive(receive);
      return;
    }
    Request* sender = arrival->sender;
    const std::byte* from = sender ? sender->source() : arrival->copy.data();
    deliver(receive, from, size_error(worker(), receive.bytes(), receive.peer(), arrival->bytes));
    if (sender) sender->complete();
  }

  static void deliver(Request& receive, const std::byte* from, std::string error) {
    if (error.empty()) copy(receive.target(), from, receive.bytes());
    receive.complete(std::move(error));
  }

  std::shared_ptr<World> world_;
  std::string host_ = "inproc";
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_inproc(int workers, const Options& options) {
  require(workers >= 1, "inproc needs at least 1 worker, got {}", workers);
  auto world = std::make_shared<World>();
  for (int w = 0; w < workers; ++w) world->boxes.push_back(std::make_unique<World::Box>(workers));
  std::vector<std::unique_ptr<Transport>> all;
  for (int w = 0; w < workers; ++w) {
    all.push_back(std::make_unique<Inproc>(world, w, workers, options));
  }
  return all;
}

}  // namespace hetu::comm
