// The side of a process that comes to rank 0.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "net/transport/rendezvous_words.h"
#include "net/transport/secret.h"
#include "net/transport/sha256.h"

namespace hetu::comm {
namespace {

constexpr double kCall_s = 2;
constexpr double kLastWord_s = 5;
constexpr const char* kForOthers = "for the other ranks";

// Throws the error that rank 0 sends in place of an answer.
void hear_no(const std::vector<std::string>& packet) {
  if (packet.size() != 3 || packet[0] != kNo) return;
  for (const Code code : {Code::Timeout, Code::Comm}) {
    if (packet[2] == code_name(code)) fail(code, "{}", packet[1]);
  }
  fail(Code::Config, "{}", packet[1]);
}

class Guest final : public Rendezvous {
 public:
  explicit Guest(const RendezvousOptions& options);
  std::vector<std::string> exchange(const std::string& mine, const std::string& what) override;

 private:
  void look_around(const char* waits_for);
  void connect();
  void check_owner();
  bool try_each();
  bool call_again();
  std::optional<std::vector<std::string>> next_packet(const char* waits_for);
  std::vector<std::string> receive(const char* waits_for);
  std::vector<std::string> introduce(const Hello& hello);
  bool greet();
  void take_members(const std::vector<std::string>& packet, const Hello& hello);
  bool is_remote() const { return !far_end_.is_unix(); }

  const std::int64_t start_ = now_ns();
  std::int64_t until_;
  bool said_ = false;
  std::vector<Address> candidates_;
  Socket socket_;
  PacketReader reader_{kLongestHello};  // until it has greeted as rank 0
  std::string host_nonce_;
  int refusal_ = 0;  // errno of the last attempt
};

Guest::Guest(const RendezvousOptions& options)
    : Rendezvous(options), until_(start_ + static_cast<std::int64_t>(options.timeout_s * 1e9)) {
  if (options.name.empty()) candidates_ = resolve(options.address, options.port, "MASTER_ADDR");
  const bool is_here = options.one_host || !options.name.empty() ||
                       std::any_of(candidates_.begin(), candidates_.end(),
                                   [](const Address& a) { return a.is_loopback() || a.is_own(); });
  if (is_here) {
    for (const Address& each : candidates_) {
      if (own_end_.length == 0 || !each.is_loopback()) own_end_ = each;
    }
    if (own_end_.is_loopback()) own_end_ = any_address(own_end_);  // see Host::listen_tcp
    candidates_ = {meeting_point(options)};
  }
  // Comes before connect(): it takes a while, and rank 0 has little patience with silent callers.
  const Hello hello = own_hello(options_);
  connect();
  take_members(introduce(hello), hello);
}

// Introduces this rank and returns rank 0's answer. While strangers flood its port, rank 0 may drop
// a connection that it has not read yet. A rank whose connection was dropped calls again.
std::vector<std::string> Guest::introduce(const Hello& hello) {
  const std::string text = pack_hello(hello);
  bool is_first = true;
  do {
    if (!greet()) continue;
    const std::string proof =
        is_remote() ? hex_of(hmac_sha256(job_secret(options_.secret), "guest" + host_nonce_ + text))
                    : "";
    // From here on rank 0, which knows the missing ranks, should be the first to time out.
    if (is_first)
      until_ = now_ns() + static_cast<std::int64_t>((options_.timeout_s + kLastWord_s) * 1e9);
    is_first = false;
    send_packet(socket_, pack_fields({proof, text}), until_);
    if (auto answer = next_packet(kForOthers)) return *answer;
  } while (call_again());
  if (now_ns() >= until_)
    fail(Code::Timeout, "rank {} got no answer from rank 0 at {} within {:g} s", rank(), where(),
         options_.timeout_s);
  fail(Code::Comm, "rank 0 at {} has ended, while rank {} waited {}", where(), rank(), kForOthers);
}

// Lets Ctrl-C end the wait, and logs once after 3 s what this rank waits for.
void Guest::look_around(const char* waits_for) {
  if (options_.while_waiting) options_.while_waiting();
  if (said_ || now_ns() - start_ < 3 * kSecond) return;
  said_ = true;
  log(Level::Info, "rank {} waits {} at {}", rank(), waits_for, where());
}

bool Guest::try_each() {
  for (const Address& address : candidates_) {
    socket_ = connect_to(address, kCall_s);
    if (socket_) return true;
    refusal_ = errno;
  }
  return false;
}

void Guest::connect() {
  while (!try_each()) {
    if (now_ns() >= until_)
      fail(
          Code::Timeout,
          "rank {} of {} found no rank 0 at {} within {:g} s ({}); start one process with RANK=0 "
          "on the host of MASTER_ADDR, and give all processes the same MASTER_ADDR and MASTER_PORT",
          rank(), workers(), where(), options_.timeout_s, std::strerror(refusal_));
    look_around("for rank 0");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  check_owner();
}

// Returns true if rank 0, which has closed the connection, accepts another one.
bool Guest::call_again() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (now_ns() >= until_ || !try_each()) return false;
  reader_ = PacketReader(kLongestHello);
  check_owner();
  return true;
}

// Refuses a Unix socket of another user: any user may listen under an abstract name.
void Guest::check_owner() {
  far_end_ = peer_address(socket_);
  if (is_remote()) {
    own_end_ = own_address(socket_);
    return;
  }
  if (const PeerOwner owner = owner_of(socket_); owner.user != geteuid())
    fail(Code::Comm,
         "{} belongs to user {} (process {}), but this process belongs to user {}; choose another "
         "MASTER_PORT",
         where(), owner.user, owner.pid, geteuid());
}

// Returns the next packet of rank 0, or nullopt once rank 0 has closed the connection.
std::optional<std::vector<std::string>> Guest::next_packet(const char* waits_for) {
  while (true) {
    switch (reader_.read(socket_)) {
      case PacketReader::State::Whole:
        if (auto fields = unpack_fields(reader_.take())) return fields;
        [[fallthrough]];
      case PacketReader::State::Foreign:
        fail(Code::Comm,
             "{} is not a rendezvous of Hetu: another program answers there; choose another "
             "MASTER_PORT",
             where());
      case PacketReader::State::Ended:
        return std::nullopt;
      case PacketReader::State::Waiting:
        break;
    }
    if (now_ns() >= until_)
      fail(Code::Timeout, "rank {} waited {:g} s at {} {}", rank(), options_.timeout_s, where(),
           waits_for);
    look_around(waits_for);
    wait_for(socket_.fd(), POLLIN, std::min(until_, now_ns() + kLook));
  }
}

std::vector<std::string> Guest::receive(const char* waits_for) {
  if (auto packet = next_packet(waits_for)) return *packet;
  fail(Code::Comm, "rank 0 at {} has ended, while rank {} waited {}", where(), rank(), waits_for);
}

// Reads the greeting of rank 0. Returns false if rank 0 has closed the connection.
bool Guest::greet() {
  const auto packet = next_packet("for the greeting of rank 0");
  if (!packet) return false;
  const std::vector<std::string>& greeting = *packet;
  if (greeting.size() != 4 || greeting[0] != kMagic)
    fail(
        Code::Comm,
        "{} is not a rendezvous of Hetu: another program answers there; choose another MASTER_PORT",
        where());
  if (greeting[1] != kProtocol)
    fail(Code::Config,
         "rank 0 at {} runs another version of Hetu than rank {} (rendezvous protocol {} instead "
         "of {}); all ranks need the same version",
         where(), rank(), greeting[1], kProtocol);
  reader_.allow(kLongestPacket);
  host_nonce_ = greeting[2];
  if (!greeting[3].empty())
    fail(Code::Config, "rank {} of {} came too late or to the wrong job: {}", rank(), workers(),
         greeting[3]);
  return true;
}

// Checks rank 0's proof, and stores the key of the links and the members.
void Guest::take_members(const std::vector<std::string>& packet, const Hello& hello) {
  const auto body =
      packet.size() == 3 && packet[0] == kAll ? unpack_fields(packet[2]) : std::nullopt;
  hear_no(packet);
  const std::string secret = is_remote() ? job_secret(options_.secret) : "";
  if (!body || body->size() != 2 + 4 * static_cast<std::size_t>(workers()) ||
      (is_remote() &&
       !same_secret(packet[1], hex_of(hmac_sha256(secret, "host" + hello.nonce + packet[2])))))
    fail(Code::Comm, "{} did not prove that it has the secret of this job", where());
  key_ = is_remote() ? hex_of(hmac_sha256(secret, "links" + (*body)[0])) : (*body)[1];
  for (int r = 0; r < workers(); ++r) {
    const auto field = [&](int i) { return (*body)[2 + 4 * r + i]; };
    members_.push_back({field(0), field(1), field(2), std::stoi(field(3))});
  }
}

std::vector<std::string> Guest::exchange(const std::string& mine, const std::string& what) {
  until_ = now_ns() + static_cast<std::int64_t>(options_.timeout_s * 1e9);
  said_ = true;
  send_packet(socket_, pack_fields({mine}), until_);
  std::vector<std::string> packet = receive(("for " + what).c_str());
  hear_no(packet);
  auto texts = packet.size() == 2 && packet[0] == kAll ? unpack_fields(packet[1]) : std::nullopt;
  if (!texts || static_cast<int>(texts->size()) != workers())
    fail(Code::Comm, "rank 0 at {} sent no answer for {}", where(), what);
  return *texts;
}

}  // namespace

std::unique_ptr<Rendezvous> join_rendezvous(const RendezvousOptions& options) {
  return std::make_unique<Guest>(options);
}

}  // namespace hetu::comm
