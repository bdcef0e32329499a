#include "net/transport/callers.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "net/transport/transport.h"

namespace hetu::comm {
namespace {

constexpr int kMostAccepted = 64;
constexpr double kReadTime_s = 0.2;
constexpr std::int64_t kReadTime_ns = static_cast<std::int64_t>(kReadTime_s * 1e9);

}  // namespace

std::list<Caller>::iterator Callers::oldest_of_the_busiest() {
  std::map<std::string, int> count;
  for (const Caller& caller : callers_) {
    if (caller.is_remote) ++count[caller.from];
  }
  const auto busiest = std::max_element(
      count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::find_if(callers_.begin(), callers_.end(), [&](const Caller& caller) {
    return caller.is_remote && caller.from == busiest->first;
  });
}

std::size_t most_callers(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, wanted);
}

// Makes room for one more remote caller. Returns false if none may be accepted at present.
bool Callers::make_slot(std::int64_t now) {
  const auto remote = std::count_if(callers_.begin(), callers_.end(),
                                    [](const Caller& caller) { return caller.is_remote; });
  if (static_cast<std::size_t>(remote) < most_) return true;
  if (now < full_until_) return false;
  const auto oldest = oldest_of_the_busiest();
  full_until_ = oldest->since + kReadTime_ns;
  if (now < full_until_) return false;
  callers_.erase(oldest);
  return true;
}

void Callers::accept(const Socket& listener, const std::function<bool(Caller&)>& greet) {
  const bool is_remote = !own_address(listener).is_unix();
  for (int i = 0; i < kMostAccepted; ++i) {
    const std::int64_t now = now_ns();
    if (is_remote && !make_slot(now)) return;
    Socket socket = accept_from(listener);
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      starved_until_ = now + kReadTime_ns;  // else poll(2) would return at once, again and again
      return;
    }
    if (!socket) return;
    std::string from = is_remote ? peer_address(socket).host() : "";
    Caller caller{std::move(socket), is_remote, std::move(from), now, "", PacketReader(longest_)};
    if (greet(caller)) callers_.push_back(std::move(caller));
  }
}

void Callers::read(const std::function<void(Caller&, PacketReader::State)>& take) {
  const std::int64_t overdue = now_ns() - static_cast<std::int64_t>(deadline_s_ * 1e9);
  for (auto each = callers_.begin(); each != callers_.end();) {
    const PacketReader::State state = each->reader.read(each->socket);
    if (state == PacketReader::State::Waiting && each->since > overdue) {
      ++each;
      continue;
    }
    if (state == PacketReader::State::Whole || state == PacketReader::State::Foreign)
      take(*each, state);
    each = callers_.erase(each);
  }
}

void Callers::add_sources(const std::vector<const Socket*>& listeners,
                          std::vector<pollfd>& sources) const {
  const std::int64_t now = now_ns();
  for (const Socket* listener : listeners) {
    if (!*listener || now < starved_until_) continue;
    if (now < full_until_ && !own_address(*listener).is_unix()) continue;
    sources.push_back({listener->fd(), POLLIN, 0});
  }
  for (const Caller& caller : callers_) sources.push_back({caller.socket.fd(), POLLIN, 0});
}

}  // namespace hetu::comm
