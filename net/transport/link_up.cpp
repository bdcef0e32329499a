// Connects every pair of workers after a rendezvous. All ranks first listen, and exchange their
// numbers and ports. Then each rank calls the ranks below it, so every pair connects once:
//
//   rank 2 calls ranks 0 and 1      rank 1 calls rank 0      rank 0 only receives calls
//
// Workers with equal domains connect through Unix sockets, and others through TCP. Both ends prove
// that they know the key of the rendezvous: HMAC(key, "link FROM TO") in each direction.
#include "net/transport/link_up.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "net/transport/callers.h"
#include "net/transport/frame.h"
#include "net/transport/sha256.h"

namespace hetu::comm {
namespace {

constexpr std::size_t kLongestProof = 256;
constexpr double kConnectTimeout_s = 10;
constexpr double kProof_s = 10;  // seconds that a caller may stay silent

int number_in(const std::string& text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Opens this worker's listening sockets, and connects to the other workers.
class LinkUp {
 public:
  LinkUp(Rendezvous& met, double timeout_s)
      : met_(met),
        until_(now_ns() + static_cast<std::int64_t>(timeout_s * 1e9)),
        sockets_(met.workers()) {}

  /// Publishes where this rank can be reached. Returns the number that each rank states.
  std::vector<std::string> exchange_numbers(int number);
  /// Returns the connections by rank.
  std::vector<Socket> all();

 private:
  bool is_near(int rank) const {
    return met_.members()[rank].domain == met_.members()[met_.rank()].domain;
  }
  Address near_address(int rank) const {
    return unix_address(fmt::format("hetu-link-{}-{}", name_, rank));
  }
  std::string proof(int from, int to) const {
    return hex_of(hmac_sha256(met_.key(), fmt::format("link {} {}", from, to)));
  }
  std::string name_of(int rank) const {
    const Member& member = met_.members()[rank];
    return fmt::format("rank {} (host {}, process {})", rank, member.host, member.pid);
  }
  void call(int rank);
  void receive_calls(int missing);
  void admit(Caller& caller);
  void hear_answer(int rank);

  Rendezvous& met_;
  const std::int64_t until_;
  std::string name_;
  Socket near_, far_;
  std::vector<int> ports_;  // by rank
  std::vector<Socket> sockets_;
};

// Listens, and exchanges numbers and ports with all ranks.
std::vector<std::string> LinkUp::exchange_numbers(int number) {
  name_ = hex_of(sha256("name " + met_.key())).substr(0, 24);
  near_ = listen_at(near_address(met_.rank()));
  int port = 0;
  if (met_.spans_hosts()) {
    far_ = listen_at(met_.own_end().with_port(0));
    if (far_) port = own_address(far_).port();
  }
  if (!near_ || (met_.spans_hosts() && !far_))
    fail(Code::Comm, "rank {} cannot listen for the other workers: {}", met_.rank(),
         std::strerror(errno));
  const std::string mine = pack_fields({std::to_string(number), std::to_string(port)});
  std::vector<std::string> numbers;
  for (const std::string& text : met_.exchange(mine, "the start of the job")) {
    const auto fields = unpack_fields(text);
    if (!fields || fields->size() != 2)
      fail(Code::Comm, "rank {} did not send its number and port", numbers.size());
    numbers.push_back((*fields)[0]);
    ports_.push_back(number_in((*fields)[1]));
  }
  return numbers;
}

void LinkUp::call(int rank) {
  Address address = near_address(rank);
  if (!is_near(rank)) {
    const std::string& host = met_.members()[rank].address;
    address = host.empty() ? met_.far_end() : resolve(host, 0, "MASTER_ADDR").front();
    address = address.with_port(ports_[rank]);
  }
  const auto try_once = [&] { return connect_to(address, kConnectTimeout_s); };
  Socket socket = try_once();
  // The other end's queue of connections is full.
  while (!socket && errno == EAGAIN && now_ns() < until_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    socket = try_once();
  }
  if (!socket)
    fail(Code::Comm, "rank {} cannot connect to {}{}: {}", met_.rank(), name_of(rank),
         address.is_unix() ? "" : fmt::format(" at {}, port {}", address.host(), address.port()),
         std::strerror(errno));
  if (address.is_unix() && owner_of(socket).user != geteuid())
    fail(Code::Comm, "the link to {} belongs to another user ({})", name_of(rank),
         owner_of(socket).user);
  send_packet(socket, pack_fields({std::to_string(met_.rank()), proof(met_.rank(), rank)}), until_);
  sockets_[rank] = std::move(socket);
}

// Keeps the connection of a caller that proves to be the rank it names.
void LinkUp::admit(Caller& caller) {
  const auto fields = unpack_fields(caller.reader.take());
  const int rank = fields && fields->size() == 2 ? number_in((*fields)[0]) : -1;
  if (rank <= met_.rank() || rank >= met_.workers() || sockets_[rank] ||
      !same_secret((*fields)[1], proof(rank, met_.rank())))
    return;
  send_packet(caller.socket, pack_fields({proof(met_.rank(), rank)}), until_);
  sockets_[rank] = std::move(caller.socket);
}

void LinkUp::receive_calls(int missing) {
  Callers callers(kLongestProof, most_callers(2 * static_cast<std::size_t>(met_.workers()) + 64),
                  kProof_s);
  const auto is_ours = [](const Caller& caller) {
    return caller.is_remote || owner_of(caller.socket).user == geteuid();
  };
  const auto count = [&] {
    return std::count_if(sockets_.begin() + met_.rank() + 1, sockets_.end(),
                         [](const Socket& s) { return !s; });
  };
  for (; missing > 0; missing = static_cast<int>(count())) {
    std::vector<pollfd> sources;
    callers.add_sources({&near_, &far_}, sources);
    ::poll(sources.data(), sources.size(), 200);
    callers.read([&](Caller& caller, PacketReader::State state) {
      if (state == PacketReader::State::Whole) admit(caller);
    });
    for (const Socket* listener : {&near_, &far_}) {
      if (*listener) callers.accept(*listener, is_ours);
    }
    if (now_ns() < until_) continue;
    const auto first = std::find_if(sockets_.begin() + met_.rank() + 1, sockets_.end(),
                                    [](const Socket& s) { return !s; });
    if (first != sockets_.end())
      fail(Code::Timeout, "{} did not connect to rank {} in time",
           name_of(static_cast<int>(first - sockets_.begin())), met_.rank());
  }
}

void LinkUp::hear_answer(int rank) {
  PacketReader reader(kLongestProof);
  PacketReader::State state = reader.read(sockets_[rank]);
  while (state == PacketReader::State::Waiting && now_ns() < until_) {
    wait_for(sockets_[rank].fd(), POLLIN, std::min(until_, now_ns() + kSecond));
    state = reader.read(sockets_[rank]);
  }
  const auto fields =
      state == PacketReader::State::Whole ? unpack_fields(reader.take()) : std::nullopt;
  if (!fields || fields->size() != 1 || !same_secret((*fields)[0], proof(rank, met_.rank())))
    fail(Code::Comm, "{} did not answer as a worker of this job", name_of(rank));
}

// Each rank calls the ranks below it and is called by those above it. Answers are read last, so
// that no rank waits for another rank that waits itself.
std::vector<Socket> LinkUp::all() {
  for (int rank = 0; rank < met_.rank(); ++rank) call(rank);
  receive_calls(met_.workers() - 1 - met_.rank());
  for (int rank = 0; rank < met_.rank(); ++rank) hear_answer(rank);
  return std::move(sockets_);
}

}  // namespace

std::vector<Socket> link_up(Rendezvous& met, int number, double timeout_s, WorkerRanks& ranks) {
  LinkUp links(met, timeout_s);
  const int mine = number < 0 ? met.rank() : number;
  const std::vector<std::string> numbers = links.exchange_numbers(mine);
  const int workers = met.workers();
  ranks.rank_of.assign(workers, -1);
  for (int rank = 0; rank < workers; ++rank) {
    const int worker = number_in(numbers[rank]);
    require(worker >= 0 && worker < workers && ranks.rank_of[worker] < 0,
            "workers must be numbered 0 to {}, each once; rank {} is number {}{}", workers - 1,
            rank, numbers[rank],
            worker >= 0 && worker < workers ? fmt::format(", as is rank {}", ranks.rank_of[worker])
                                            : "");
    ranks.rank_of[worker] = rank;
  }
  ranks.worker = mine;
  std::vector<Socket> by_rank = links.all(), by_worker(workers);
  for (int w = 0; w < workers; ++w) by_worker[w] = std::move(by_rank[ranks.rank_of[w]]);
  return by_worker;
}

}  // namespace hetu::comm
