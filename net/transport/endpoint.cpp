#include "net/transport/endpoint.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "net/transport/transport.h"

namespace hetu::comm {
namespace {

constexpr int kBacklog = 1024;

const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}
sockaddr* raw(Address& address) { return reinterpret_cast<sockaddr*>(&address.storage); }

const sockaddr_in& as_v4(const Address& a) {
  return reinterpret_cast<const sockaddr_in&>(a.storage);
}
const sockaddr_in6& as_v6(const Address& a) {
  return reinterpret_cast<const sockaddr_in6&>(a.storage);
}

int open_socket(const Address& address) {
  return ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// Sends small messages at once, and lets the system notice the loss of the other host.
void set_up(const Socket& socket, const Address& address) {
  if (address.is_unix()) return;
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void put_length(std::string& text, std::size_t length) {
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(length >> shift);
}

std::size_t get_length(std::string_view text) {
  std::size_t length = 0;
  for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(text[i]);
  return length;
}

}  // namespace

Socket::~Socket() { close(); }

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET) return ntohl(as_v4(*this).sin_addr.s_addr) >> 24 == 127;
  if (storage.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&as_v6(*this).sin6_addr);
  return true;
}

bool Address::is_own() const {
  const Address any_port = with_port(0);
  const Socket socket(open_socket(any_port));
  return socket && ::bind(socket.fd(), raw(any_port), any_port.length) == 0;
}

std::string Address::host() const {
  if (is_unix()) return {};
  std::array<char, NI_MAXHOST> text{};
  const int error =
      getnameinfo(raw(*this), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text.data() : "?";
}

int Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? as_v6(*this).sin6_port : as_v4(*this).sin_port);
}

Address Address::with_port(int port) const {
  Address other = *this;
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(other.storage).sin6_port = htons(port);
  } else if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(other.storage).sin_port = htons(port);
  }
  return other;
}

Address unix_address(const std::string& name) {
  Address address;
  auto& unix_name = reinterpret_cast<sockaddr_un&>(address.storage);
  unix_name.sun_family = AF_UNIX;
  HETU_ASSERT(name.size() + 1 < sizeof unix_name.sun_path);
  // A leading zero byte makes the name abstract.
  std::copy(name.begin(), name.end(), unix_name.sun_path + 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Address any_address(const Address& like) {
  Address any;
  any.length = like.length;
  any.storage.ss_family = like.storage.ss_family;  // all other bytes are 0: any address, any port
  return any;
}

std::vector<Address> resolve(const std::string& host, int port, const char* variable) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    fail(Code::Config, "environment variable {}: got '{}', which is not a known host: {}", variable,
         host, gai_strerror(error));
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

Address own_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  ::getsockname(socket.fd(), raw(address), &address.length);
  return address;
}

Address peer_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  ::getpeername(socket.fd(), raw(address), &address.length);
  return address;
}

PeerOwner owner_of(const Socket& socket) {
  ucred owner{};
  socklen_t length = sizeof owner;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0)
    fail(Code::Comm, "cannot determine the owner of the other end of a Unix socket: {}",
         std::strerror(errno));
  return {owner.uid, owner.pid};
}

Socket listen_at(const Address& address) {
  Socket socket(open_socket(address));
  const int on = 1;
  if (socket && !address.is_unix())  // else the port of a job that has just ended stays in use
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket || ::bind(socket.fd(), raw(address), address.length) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_up(socket, own_address(socket));
  return socket;
}

Socket connect_to(const Address& address, double patience_s) {
  Socket socket(open_socket(address));
  if (!socket) return socket;
  set_up(socket, address);
  int error = 0;
  if (::connect(socket.fd(), raw(address), address.length) != 0) error = errno;
  if (error == EINPROGRESS) {
    const std::int64_t until = now_ns() + static_cast<std::int64_t>(patience_s * 1e9);
    error = ETIMEDOUT;
    socklen_t length = sizeof error;
    if (wait_for(socket.fd(), POLLOUT, until))
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) socket.close();
  errno = error;
  return socket;
}

bool wait_for(int fd, short events, std::int64_t until_ns) {
  const std::int64_t left = std::max<std::int64_t>(0, until_ns - now_ns());
  const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
  pollfd source{fd, events, 0};
  return ::ppoll(&source, 1, &timeout, nullptr) > 0;
}

std::string pack_fields(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) {
    put_length(text, field.size());
    text += field;
  }
  return text;
}

std::optional<std::vector<std::string>> unpack_fields(std::string_view text) {
  std::vector<std::string> fields;
  while (!text.empty()) {
    if (text.size() < 4) return std::nullopt;
    const std::size_t length = get_length(text);
    if (length > text.size() - 4) return std::nullopt;
    fields.emplace_back(text.substr(4, length));
    text.remove_prefix(4 + length);
  }
  return fields;
}

PacketReader::State PacketReader::read(const Socket& socket) {
  while (true) {
    const std::size_t wanted =
        data_.size() < 4 ? 4 - data_.size() : 4 + get_length(data_) - data_.size();
    if (data_.size() >= 4 && get_length(data_) > longest_) return State::Foreign;
    if (wanted == 0) return State::Whole;
    std::array<char, 4096> part{};
    const ssize_t got = ::recv(socket.fd(), part.data(), std::min(wanted, part.size()), 0);
    if (got > 0) {
      data_.append(part.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return State::Waiting;
    } else {
      return State::Ended;
    }
  }
}

std::string PacketReader::take() {
  std::string packet = data_.substr(4);
  data_.clear();
  return packet;
}

bool send_packet(const Socket& socket, std::string_view packet, std::int64_t until_ns) {
  std::string text;
  put_length(text, packet.size());
  text += packet;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(socket.fd(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent > 0) {
      at += static_cast<std::size_t>(sent);
    } else if ((errno != EAGAIN && errno != EINTR) || now_ns() >= until_ns) {
      return false;
    } else {
      wait_for(socket.fd(), POLLOUT, until_ns);
    }
  }
  return true;
}

}  // namespace hetu::comm
