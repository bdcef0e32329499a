// The side of rank 0, to which the other processes come.
//
// Over a Unix socket the system names the owner of the other end, so no proof is needed. Over TCP
// both sides prove that they have the job's secret S, without sending it:
//
//   guest   HMAC(S, "guest" + the host's nonce + the packed Hello)
//   host    HMAC(S, "host" + the guest's nonce + the packed members)
//
// The key of the links is HMAC(S, "links" + a nonce among the members), which remote guests compute
// themselves. Guests on the host of rank 0 receive the key. If the job is on one host, S is random.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "net/transport/callers.h"
#include "net/transport/rendezvous_words.h"
#include "net/transport/secret.h"
#include "net/transport/sha256.h"

namespace hetu::comm {
namespace {

constexpr std::size_t kMostCallers = 256;  // over TCP
constexpr int kWarnings = 3;               // warnings with the same text
constexpr std::size_t kMostKinds = 50;     // different warnings

/// A rank that has come.
struct Present {
  Socket socket;
  bool is_remote = false;
  Hello hello;
  PacketReader reader{kLongestPacket};
  std::optional<std::string> text;  ///< its text of the exchange in progress
};

class Host final : public Rendezvous {
 public:
  explicit Host(const RendezvousOptions& options);
  std::vector<std::string> exchange(const std::string& mine, const std::string& what) override;
  std::vector<int> late() const override;
  void refuse_late() override;

 private:
  void listen();
  void listen_tcp();
  void turn();
  bool greet(Caller& caller);
  void accept_callers();
  void take_hello(Caller& caller, PacketReader::State state);
  std::string fault_of(const Hello& hello, const Caller& caller, const std::string& proof,
                       const std::string& text);
  void take_packets();
  void send_members();
  void warn(const Caller& caller, const std::string& why);
  [[noreturn]] void end(Code code, const std::string& why);
  std::vector<int> missing(bool (*is_there)(const Present&)) const;

  const std::int64_t start_ = now_ns();
  Hello own_;
  std::vector<Socket> listeners_;
  Callers callers_{kLongestHello, most_callers(kMostCallers), kPatience_s};
  std::map<int, Present> present_;
  std::vector<int> gone_;  // ranks whose processes have ended since the last check
  bool complete_ = false;
  std::map<std::string, int> warned_;
};

Host::Host(const RendezvousOptions& options) : Rendezvous(options), own_(own_hello(options)) {
  listen();
  const std::int64_t until = start_ + static_cast<std::int64_t>(options.timeout_s * 1e9);
  const auto came = [](const Present&) { return true; };
  for (bool said = false; static_cast<int>(present_.size()) + 1 < workers();) {
    if (options_.while_waiting) options_.while_waiting();
    const std::int64_t now = now_ns();
    if (now >= until)
      end(Code::Timeout, fmt::format("{} of {} did not connect to {} within {:g} s; each process "
                                     "needs the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and "
                                     "its own RANK",
                                     listed(missing(came)), workers(), where(), options.timeout_s));
    if (!said && now - start_ > 3 * kSecond) {
      log(Level::Info, "rank 0 waits for {} of {} at {}", listed(missing(came)), workers(),
          where());
      said = true;
    }
    turn();
    for (const int rank : gone_) {
      log(Level::Warning, "{} has ended before all ranks had connected",
          name_of(rank, present_.at(rank).hello.member));
      present_.erase(rank);
    }
    gone_.clear();
  }
  send_members();
}

std::vector<int> Host::missing(bool (*is_there)(const Present&)) const {
  std::vector<int> ranks;
  for (int r = 1; r < workers(); ++r) {
    const auto found = present_.find(r);
    if (found == present_.end() || !is_there(found->second)) ranks.push_back(r);
  }
  return ranks;
}

void Host::listen() {
  const Address point = meeting_point(options_);
  listeners_.push_back(listen_at(point));
  own_end_ = far_end_ = point;
  if (!listeners_.back()) {
    const int error = errno;
    const Socket other = connect_to(point, 1);
    fail(Code::Config,
         "RANK=0 cannot listen at {}: {}; end that process, or choose another "
         "MASTER_PORT",
         where(),
         other ? fmt::format("process {} is already rank 0 there", owner_of(other).pid)
               : std::strerror(error));
  }
  if (options_.name.empty() && !options_.one_host && workers() > 1) listen_tcp();
}

// A host may resolve its own name to a loopback address (Debian's installer writes 127.0.1.1),
// while other hosts resolve it to the right one. Rank 0 then listens on all addresses.
void Host::listen_tcp() {
  const std::vector<Address> addresses = resolve(options_.address, options_.port, "MASTER_ADDR");
  const auto is_loopback = [](const Address& a) { return a.is_loopback(); };
  const bool all = std::all_of(addresses.begin(), addresses.end(), is_loopback);
  if (all && (options_.address == "localhost" || addresses[0].host() == options_.address)) return;
  Address at = all ? any_address(addresses[0]).with_port(options_.port)
                   : *std::find_if_not(addresses.begin(), addresses.end(), is_loopback);
  listeners_.push_back(listen_at(at));
  if (!listeners_.back()) {
    const int error = errno;
    if (error == EADDRNOTAVAIL)
      fail(Code::Config,
           "environment variable MASTER_ADDR: got '{}', which is not an address of this host ({}); "
           "it must be an address of the host where RANK=0 is started",
           options_.address, own_.member.host);
    fail(Code::Config, "cannot listen at port {} of {} (MASTER_PORT): {}; choose another port",
         options_.port, options_.address, std::strerror(error));
  }
  own_end_ = far_end_ = at;
}

void Host::warn(const Caller& caller, const std::string& why) {
  if (warned_.size() < kMostKinds && ++warned_[why] <= kWarnings)
    log(Level::Warning, "{}: {} was refused: {}", where(),
        caller.is_remote ? caller.from : "a process on this host", why);
}

// Greets a caller. Returns true if the caller may introduce itself.
bool Host::greet(Caller& caller) {
  if (!caller.is_remote && owner_of(caller.socket).user != geteuid()) {
    warn(caller, fmt::format("it belongs to user {}", owner_of(caller.socket).user));
    return false;
  }
  caller.nonce = random_bytes(16);
  const std::string closed =
      !complete_
          ? ""
          : fmt::format(
                "the job at {} already has its {} ranks{}", where(), workers(),
                caller.is_remote ? "" : fmt::format(" (rank 0 is process {})", own_.member.pid));
  send_packet(caller.socket, pack_fields({kMagic, kProtocol, caller.nonce, closed}), now_ns());
  return !complete_;
}

void Host::accept_callers() {
  for (const Socket& listener : listeners_)
    callers_.accept(listener, [this](Caller& caller) { return greet(caller); });
}

// Returns the reason why this process cannot be a rank of the job; "" if it can.
std::string Host::fault_of(const Hello& hello, const Caller& caller, const std::string& proof,
                           const std::string& text) {
  const std::string who = name_of(hello.rank, hello.member);
  if (caller.is_remote && !same_secret(proof, hex_of(hmac_sha256(job_secret(options_.secret),
                                                                 "guest" + caller.nonce + text))))
    return fmt::format(
        "{} has another secret than rank 0 (host {}); all ranks need the same HETU_JOB_SECRET, or "
        "the same ~/.config/hetu/job_secret",
        who, own_.member.host);
  if (hello.build != own_.build)
    return fmt::format(
        "{} runs another version or build of Hetu ({}) than rank 0 on host {} ({}); all ranks need "
        "the same build",
        who, hello.build, own_.member.host, own_.build);
  if (hello.workers != workers())
    return fmt::format("{} was started with WORLD_SIZE={}, rank 0 (process {}) with WORLD_SIZE={}",
                       who, hello.workers, own_.member.pid, workers());
  if (hello.rank < 1 || hello.rank >= workers())
    return fmt::format("{}: this RANK is not in the job, whose ranks are 0 to {}", who,
                       workers() - 1);
  if (const auto same = present_.find(hello.rank); same != present_.end())
    return fmt::format("{} is a duplicate: {} came before it, started as `{}`", who,
                       name_of(hello.rank, same->second.hello.member), same->second.hello.words);
  return {};
}

void Host::take_hello(Caller& caller, PacketReader::State state) {
  const auto packet =
      state == PacketReader::State::Whole ? unpack_fields(caller.reader.take()) : std::nullopt;
  auto hello = packet && packet->size() == 2 ? unpack_hello((*packet)[1]) : std::nullopt;
  if (!hello) {
    warn(caller, "it is not a process of Hetu");
    return;
  }
  if (const std::string fault = fault_of(*hello, caller, (*packet)[0], (*packet)[1]);
      !fault.empty()) {
    warn(caller, fault);
    send_packet(caller.socket, pack_fields({kNo, fault, code_name(Code::Config)}), now_ns());
    return;
  }
  if (caller.is_remote) hello->member.address = caller.from;
  if (hello->words != own_.words)
    log(Level::Warning, "{} was started as `{}`, rank 0 as `{}`",
        name_of(hello->rank, hello->member), hello->words, own_.words);
  const int rank = hello->rank;
  present_.emplace(rank, Present{std::move(caller.socket), caller.is_remote, std::move(*hello)});
}

void Host::take_packets() {
  for (auto& [rank, one] : present_) {
    if (one.text) continue;  // leaves the packet of the next exchange in the socket
    const PacketReader::State state = one.reader.read(one.socket);
    if (state == PacketReader::State::Waiting) continue;
    auto fields =
        state == PacketReader::State::Whole ? unpack_fields(one.reader.take()) : std::nullopt;
    if (fields && fields->size() == 1) {
      one.text = std::move((*fields)[0]);
    } else {
      gone_.push_back(rank);
    }
  }
}

// Sleeps until something arrives, but at most for kLook, and handles it.
void Host::turn() {
  std::vector<pollfd> sources;
  std::vector<const Socket*> listeners;
  for (const Socket& listener : listeners_) listeners.push_back(&listener);
  callers_.add_sources(listeners, sources);
  for (const auto& [rank, one] : present_) {
    if (!one.text) sources.push_back({one.socket.fd(), POLLIN, 0});
  }
  ::poll(sources.data(), sources.size(), static_cast<int>(kLook / 1'000'000));
  take_packets();
  callers_.read([this](Caller& caller, PacketReader::State state) { take_hello(caller, state); });
  accept_callers();
}

// Closes the meeting: makes the key of the links, and sends the members to every rank.
void Host::send_members() {
  complete_ = true;
  callers_.clear();
  members_.push_back(own_.member);
  bool spans = false;
  for (const auto& [rank, one] : present_) {
    members_.push_back(one.hello.member);
    spans = spans || one.is_remote;
  }
  const std::string secret = spans ? job_secret(options_.secret) : "";
  const std::string nonce = random_bytes(16);
  key_ = hex_of(hmac_sha256(spans ? secret : random_bytes(32), "links" + nonce));
  for (const auto& [rank, one] : present_) {
    std::vector<std::string> body{nonce, one.is_remote ? "" : key_};
    for (const Member& m : members_) {
      body.insert(body.end(), {m.host, m.domain, m.address, std::to_string(m.pid)});
    }
    const std::string text = pack_fields(body);
    const std::string proof =
        one.is_remote ? hex_of(hmac_sha256(secret, "host" + one.hello.nonce + text)) : "";
    send_packet(one.socket, pack_fields({kAll, proof, text}), now_ns() + kSecond);
  }
}

// Sends the reason to all ranks that have come, and throws it.
void Host::end(Code code, const std::string& why) {
  for (const auto& [rank, one] : present_) {
    send_packet(one.socket, pack_fields({kNo, why, code_name(code)}), now_ns() + kSecond);
  }
  fail(code, "{}", why);
}

std::vector<std::string> Host::exchange(const std::string& mine, const std::string& what) {
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(options_.timeout_s * 1e9);
  const auto spoke = [](const Present& one) { return one.text.has_value(); };
  while (true) {
    const std::vector<int> silent = missing(spoke);
    if (silent.empty()) break;
    if (options_.while_waiting) options_.while_waiting();
    if (now_ns() >= until)
      end(Code::Timeout, fmt::format("{} did not reach {} within {:g} s", listed(silent), what,
                                     options_.timeout_s));
    turn();
    if (gone_.empty()) continue;
    const int rank = gone_.front();
    const Member member = present_.at(rank).hello.member;
    for (const int each : gone_) present_.erase(each);
    end(Code::Comm,
        fmt::format("{} has ended, while the others waited for {}", name_of(rank, member), what));
  }
  std::vector<std::string> all{mine};
  for (auto& [rank, one] : present_) {
    all.push_back(std::move(*one.text));
    one.text.reset();
  }
  const std::string packet = pack_fields({kAll, pack_fields(all)});
  for (const auto& [rank, one] : present_) send_packet(one.socket, packet, until);
  return all;
}

std::vector<int> Host::late() const {
  std::vector<int> sockets;
  for (const Socket& listener : listeners_) sockets.push_back(listener.fd());
  return sockets;
}

void Host::refuse_late() { accept_callers(); }

}  // namespace

std::unique_ptr<Rendezvous> host_rendezvous(const RendezvousOptions& options) {
  return std::make_unique<Host>(options);
}

}  // namespace hetu::comm
