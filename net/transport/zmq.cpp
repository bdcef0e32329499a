// A mesh of links over ZeroMQ. One router socket receives from all peers, and one dealer socket per
// peer sends. Messages are copied, so a send completes when its frame is queued. A dead peer
// affects only its own dealer socket and the requests that name it. CURVE keys keep strangers out.
#include "net/transport/zmq.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "base/error.h"
#include "base/log.h"
#include "net/keys/sockets.h"
#include "net/transport/mailbox.h"

namespace hetu::comm {
namespace {

constexpr std::int64_t kLongestFrame = std::int64_t{1} << 30;
constexpr int kLinger_ms = 5000;  // time to deliver what was sent before an orderly end

/// The bytes before the data of a message.
struct Head {
  Tag tag = 0;
  std::int32_t from = 0;
  std::int32_t zero = 0;
};

/// Mesh over one socket that receives from all peers, and one socket per peer that was sent to.
/// Only the mesh's own thread touches the sockets.
class ZmqMesh final : public Mesh {
 public:
  ZmqMesh(const MeshAddress& address, const Options& options)
      : Mesh(address.worker, address.workers, options),
        address_(address),
        mailbox_(address.workers),
        lost_(address.workers),
        bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        authenticator_(context_, address.public_key) {
    if (bell_ < 0) fail(Code::Io, "cannot create an eventfd for a mesh: {}", std::strerror(errno));
    context_.set(zmq::ctxopt::max_sockets, std::max(1023, 2 * address.workers + 16));
    in_.set(zmq::sockopt::linger, 0);
    in_.set(zmq::sockopt::rcvhwm, 0);
    in_.set(zmq::sockopt::maxmsgsize, kLongestFrame + static_cast<std::int64_t>(sizeof(Head)));
    curve::serve_encrypted(in_, address.secret_key);
    in_.bind(address.endpoint);
    endpoint_ = in_.get(zmq::sockopt::last_endpoint);
    out_.resize(static_cast<std::size_t>(address.workers));
    thread_ = std::thread([this] { serve(); });
  }

  ~ZmqMesh() override {
    over_ = true;
    ring();
    thread_.join();
    close(bell_);
  }

  const std::string& host_of(int worker) const override {
    return worker == this->worker() ? endpoint_ : nowhere_;
  }
  bool same_clock(int) const override { return is_local(); }
  const std::string& endpoint() const override { return endpoint_; }

  void meet(const std::vector<std::string>& endpoints) override {
    require(static_cast<int>(endpoints.size()) == workers(),
            "worker {}: got {} endpoints for a mesh of {} workers", worker(), endpoints.size(),
            workers());
    for (int w = 0; w < workers(); ++w) {
      if (endpoints[w].empty() && w != worker()) lose(w, "never connected");
    }
    {
      const std::lock_guard lock(mutex_);
      endpoints_ = endpoints;
    }
    ring();
  }

  void lose(int peer, const std::string& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (!lost_[peer].empty()) return;
      lost_[peer] = fmt::format("worker {} {}", peer, why);
      for (Request* request : mailbox_.clear(peer)) request->complete(lost_[peer]);
    }
    ring();
  }

  void abort(int, const std::string& reason) override {
    for (int w = 0; w < workers(); ++w) lose(w, "can no longer be reached: " + reason);
  }

 protected:
  void post(Request& request) override {
    const int peer = request.peer();
    if (!request.is_send()) {
      const std::lock_guard lock(mutex_);
      post_receive(request);
      return;
    }
    if (request.bytes() > static_cast<std::size_t>(kLongestFrame)) {
      request.complete(
          fmt::format("a message of {} bytes is too long; at most {} bytes are allowed",
                      request.bytes(), kLongestFrame));
      return;
    }
    zmq::message_t frame(sizeof(Head) + request.bytes());
    const Head head{request.tag(), worker(), 0};
    std::memcpy(frame.data(), &head, sizeof head);
    if (request.bytes() > 0) {
      std::memcpy(frame.data<std::byte>() + sizeof head, request.source(), request.bytes());
    }
    {
      const std::lock_guard lock(mutex_);
      if (!lost_[peer].empty()) {
        request.complete(lost_[peer]);
        return;
      }
      if (peer == worker()) {
        arrive(frame);
      } else {
        outbox_.emplace_back(peer, std::move(frame));
      }
    }
    request.complete();
    if (peer != worker()) ring();
  }

  void cancel(Request& request) override {
    const std::lock_guard lock(mutex_);
    if (!request.is_send()) mailbox_.remove_receive(request);
  }

  std::string ask_position(int peer) override {
    const std::lock_guard lock(mutex_);
    return lost_[peer];
  }

 private:
  bool is_local() const { return address_.endpoint.rfind("ipc://", 0) == 0; }

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
  }

  // Called under the lock, as is arrive().
  void post_receive(Request& receive) {
    const int peer = receive.peer();
    std::optional<Arrival> arrival = mailbox_.take_arrival(peer, receive.tag());
    if (arrival) {
      deliver(receive, arrival->copy.data(), arrival->bytes);
    } else if (!lost_[peer].empty()) {
      receive.complete(lost_[peer]);
    } else {
      mailbox_.add_receive(receive);
    }
  }

  void deliver(Request& receive, const std::byte* data, std::size_t bytes) const {
    std::string error = size_error(worker(), receive.bytes(), receive.peer(), bytes);
    if (error.empty() && bytes > 0) std::memcpy(receive.target(), data, bytes);
    receive.complete(std::move(error));
  }

  void arrive(const zmq::message_t& frame) {
    Head head;
    if (frame.size() < sizeof head) return;
    std::memcpy(&head, frame.data(), sizeof head);
    if (head.from < 0 || head.from >= workers()) return;
    const std::byte* data = frame.data<std::byte>() + sizeof head;
    const std::size_t bytes = frame.size() - sizeof head;
    if (Request* receive = mailbox_.take_receive(head.from, head.tag)) {
      deliver(*receive, data, bytes);
      return;
    }
    Arrival arrival;
    arrival.tag = head.tag;
    arrival.bytes = bytes;
    arrival.copy.assign(data, data + bytes);
    mailbox_.add_arrival(head.from, std::move(arrival));
  }

  /// Body of the thread.
  void serve() {
    try {
      while (true) {
        const bool last = over_;
        send_outbox();
        if (last) break;
        zmq_pollitem_t items[] = {{in_.handle(), 0, ZMQ_POLLIN, 0},
                                  {authenticator_.socket(), 0, ZMQ_POLLIN, 0},
                                  {nullptr, bell_, ZMQ_POLLIN, 0}};
        if (zmq_poll(items, 3, -1) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
        std::uint64_t rung = 0;
        [[maybe_unused]] const ssize_t count = read(bell_, &rung, sizeof rung);
        if (items[1].revents != 0) authenticator_.admit();
        take_frames();
      }
    } catch (const std::exception& error) {
      abort(0, error.what());
    }
    out_.clear();
    in_.close();
  }

  void take_frames() {
    std::vector<zmq::message_t> parts;
    while (curve::receive_all(in_, parts)) {
      if (parts.size() != 2) continue;  // the sender's identity, and the frame
      const std::lock_guard lock(mutex_);
      arrive(parts[1]);
    }
  }

  // Sends the queued frames, unless no addresses are known yet, and closes the sockets to lost
  // peers.
  void send_outbox() {
    std::vector<std::pair<int, zmq::message_t>> frames;
    std::vector<bool> gone(lost_.size());
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t w = 0; w < lost_.size(); ++w) gone[w] = !lost_[w].empty();
      if (!endpoints_.empty()) frames.swap(outbox_);
    }
    for (std::size_t w = 0; w < gone.size(); ++w) {
      if (gone[w] && out_[w]) {
        out_[w].set(zmq::sockopt::linger, 0);
        out_[w].close();
      }
    }
    for (auto& [peer, frame] : frames) {
      if (gone[peer]) continue;
      if (!out_[peer]) connect(peer);
      out_[peer].send(frame, zmq::send_flags::none);
    }
  }

  void connect(int peer) {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, kLinger_ms);
    socket.set(zmq::sockopt::sndhwm, 0);
    curve::set_key(socket, ZMQ_CURVE_SERVERKEY, address_.public_key);
    curve::set_key(socket, ZMQ_CURVE_PUBLICKEY, address_.public_key);
    curve::set_key(socket, ZMQ_CURVE_SECRETKEY, address_.secret_key);
    socket.connect(endpoints_[peer]);
    out_[peer] = std::move(socket);
  }

  const MeshAddress address_;
  std::string endpoint_;
  const std::string nowhere_ = "another host";
  std::mutex mutex_;  // guards the next four members
  Mailbox mailbox_;
  std::vector<std::string> lost_;       // reason why a worker is lost; "" while it works
  std::vector<std::string> endpoints_;  // written once, before anything is sent
  std::vector<std::pair<int, zmq::message_t>> outbox_;
  std::atomic<bool> over_{false};
  const int bell_;
  zmq::context_t context_{1};
  curve::Authenticator authenticator_;
  zmq::socket_t in_{context_, zmq::socket_type::router};
  std::vector<zmq::socket_t> out_;  // used by the thread only
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Mesh> open_mesh(const MeshAddress& address, const Options& options) {
  require(address.worker >= 0 && address.worker < address.workers,
          "there is no worker {} in a "
          "mesh of {} workers",
          address.worker, address.workers);
  try {
    return std::make_unique<ZmqMesh>(address, options);
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "worker {} cannot listen at {}: {}", address.worker, address.endpoint,
         error.what());
  }
}

}  // namespace hetu::comm
