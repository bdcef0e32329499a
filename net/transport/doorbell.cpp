// A doorbell has two descriptors. Other processes send a datagram to its socket, and threads of its
// own process write to its eventfd. sleep() waits for both of them.
#include "net/transport/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace hetu::comm {
namespace {

struct Address {
  sockaddr_un name;
  socklen_t length;
};

Address address_of(const std::string& job, int worker) {
  Address address{};
  address.name.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  const std::string text = fmt::format("hetu-{}-{}", job, worker);
  HETU_ASSERT(text.size() + 1 < sizeof address.name.sun_path);
  std::copy(text.begin(), text.end(), address.name.sun_path + 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

}  // namespace

Doorbell::Doorbell(std::string job, int worker) : job_(std::move(job)) {
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const Address address = address_of(job_, worker);
  if (socket_ < 0 || event_ < 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
    fail(Code::Comm, "worker {} cannot open its doorbell: {}", worker, std::strerror(errno));
  }
}

Doorbell::~Doorbell() {
  ::close(socket_);
  ::close(event_);
}

void Doorbell::wake() const {
  const std::uint64_t one = 1;
  // Fails only if the event is already set.
  [[maybe_unused]] const auto written = ::write(event_, &one, sizeof one);
}

bool Doorbell::ring(int worker) const {
  const Address address = address_of(job_, worker);
  const char byte = 1;
  const auto sent = ::sendto(socket_, &byte, 1, MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&address.name), address.length);
  return sent == 1 || errno == EAGAIN;  // a full queue wakes the receiver too
}

void Doorbell::sleep(std::int64_t timeout_ns, int also) const {
  std::array<pollfd, 3> sources = {pollfd{socket_, POLLIN, 0}, pollfd{event_, POLLIN, 0},
                                   pollfd{also, POLLIN, 0}};
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  if (::ppoll(sources.data(), sources.size(), &timeout, nullptr) <= 0) return;
  std::array<char, 8> sink{};
  if (sources[0].revents != 0) {
    while (::recv(socket_, sink.data(), sink.size(), MSG_DONTWAIT) > 0) {
    }
  }
  if (sources[1].revents != 0) {
    [[maybe_unused]] const auto got = ::read(event_, sink.data(), sink.size());
  }
}

std::string doorbell_domain() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> link{};
  const auto length = ::readlink("/proc/self/ns/net", link.data(), link.size() - 1);
  return boot + "/" + (length > 0 ? std::string(link.data(), length) : "?");
}

}  // namespace hetu::comm
