#include "net/transport/mailbox.h"

#include <algorithm>
#include <utility>

namespace hetu::comm {

Request* Mailbox::take_receive(int peer, Tag tag) {
  auto& list = posted_[peer];
  const auto it =
      std::find_if(list.begin(), list.end(), [&](const Request* r) { return r->tag() == tag; });
  if (it == list.end()) return nullptr;
  Request* found = *it;
  list.erase(it);
  return found;
}

std::optional<Arrival> Mailbox::take_arrival(int peer, Tag tag) {
  auto& list = arrived_[peer];
  const auto it =
      std::find_if(list.begin(), list.end(), [&](const Arrival& a) { return a.tag == tag; });
  if (it == list.end()) return std::nullopt;
  Arrival found = std::move(*it);
  list.erase(it);
  return found;
}

bool Mailbox::remove_receive(const Request& receive) {
  auto& list = posted_[receive.peer()];
  const auto it = std::find(list.begin(), list.end(), &receive);
  if (it == list.end()) return false;
  list.erase(it);
  return true;
}

bool Mailbox::remove_sender(int from, const Request& send) {
  auto& list = arrived_[from];
  const auto it =
      std::find_if(list.begin(), list.end(), [&](const Arrival& a) { return a.sender == &send; });
  if (it == list.end()) return false;
  list.erase(it);
  return true;
}

std::vector<Request*> Mailbox::clear(int peer) { return std::exchange(posted_[peer], {}); }

std::vector<Request*> Mailbox::clear() {
  std::vector<Request*> all;
  for (auto& list : posted_) {
    all.insert(all.end(), list.begin(), list.end());
    list.clear();
  }
  for (auto& list : arrived_) {
    for (const Arrival& arrival : list) {
      if (arrival.sender) all.push_back(arrival.sender);
    }
    list.clear();
  }
  return all;
}

}  // namespace hetu::comm
