// Exchanges of collective.h in which one worker gathers and sends the whole to all: bytes, sums of
// few numbers, barriers. Also copies of parts from their owners.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "net/transport/collective.h"

namespace hetu::comm {

void all_gather_bytes(Transport& transport, const Group& group,
                      const std::vector<std::size_t>& bytes_of, const void* mine, void* all,
                      const Exchange& exchange) {
  check_group(transport, group);
  require(bytes_of.size() == group.size(), "got {} sizes for a group of {} workers",
          bytes_of.size(), group.size());
  const Tag tag = exchange.tag;
  std::size_t total = 0;
  for (const std::size_t bytes : bytes_of) total += bytes;
  if (transport.worker() != group[0]) {
    const auto me = std::find(group.begin(), group.end(), transport.worker()) - group.begin();
    const auto whole = transport.recv(group[0], second_phase(tag), all, total);
    const auto own = transport.send(group[0], tag, mine, bytes_of[me]);
    transport.wait(*own, exchange.what);
    transport.wait(*whole, exchange.what);
    return;
  }
  auto* out = static_cast<std::byte*>(all);
  if (bytes_of[0] > 0) std::memcpy(out, mine, bytes_of[0]);
  std::vector<std::unique_ptr<Request>> requests;
  std::size_t at = bytes_of[0];
  for (std::size_t m = 1; m < group.size(); ++m) {
    requests.push_back(transport.recv(group[m], tag, out + at, bytes_of[m]));
    at += bytes_of[m];
  }
  for (auto& request : requests) transport.wait(*request, exchange.what);
  requests.clear();
  for (std::size_t m = 1; m < group.size(); ++m) {
    requests.push_back(transport.send(group[m], second_phase(tag), all, total));
  }
  for (auto& request : requests) transport.wait(*request, exchange.what);
}

void sum_f64(Transport& transport, const Group& order, double* values, std::size_t count,
             const Exchange& exchange) {
  Group group = order;
  std::sort(group.begin(), group.end());
  std::vector<double> all(count * group.size());
  const std::vector<std::size_t> sizes(group.size(), count * sizeof(double));
  all_gather_bytes(transport, group, sizes, values, all.data(), exchange);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto m = std::lower_bound(group.begin(), group.end(), order[k]) - group.begin();
      const double term = all[static_cast<std::size_t>(m) * count + i];
      values[i] = k == 0 ? term : values[i] + term;
    }
  }
}

// All parts use one tag. Messages of one tag arrive in the order in which they were sent, which is
// the order of the parts.
void gather_from_owners(Transport& transport, const Group& group,
                        const std::vector<OwnedPart>& parts, const Exchange& exchange) {
  check_group(transport, group);
  std::vector<std::unique_ptr<Request>> requests;
  for (const OwnedPart& part : parts) {
    require(std::binary_search(group.begin(), group.end(), part.owner),
            "worker {} owns a part, but is not in the group [{}]", part.owner,
            fmt::join(group, ", "));
    if (part.owner != transport.worker()) {
      requests.push_back(transport.recv(part.owner, exchange.tag, part.data, part.bytes));
      continue;
    }
    for (const int member : group)
      if (member != part.owner)
        requests.push_back(transport.send(member, exchange.tag, part.data, part.bytes));
  }
  for (const auto& request : requests) transport.wait(*request, exchange.what);
}

Gathered gather_bytes(Transport& transport, const void* mine, std::size_t bytes,
                      const Exchange& exchange) {
  return gather_bytes(transport, everyone(transport), mine, bytes, exchange);
}

Gathered gather_bytes(Transport& transport, const Group& group, const void* mine, std::size_t bytes,
                      const Exchange& exchange) {
  check_group(transport, group);
  std::vector<double> lengths(group.size(), 0);
  const auto me = std::find(group.begin(), group.end(), transport.worker()) - group.begin();
  lengths[static_cast<std::size_t>(me)] = static_cast<double>(bytes);
  sum_f64(transport, group, lengths.data(), lengths.size(), exchange);
  Gathered out;
  std::size_t total = 0;
  for (const double length : lengths) {
    out.bytes_of.push_back(static_cast<std::size_t>(length));
    total += out.bytes_of.back();
  }
  out.all.resize(total);
  all_gather_bytes(transport, group, out.bytes_of, mine, out.all.data(), exchange);
  return out;
}

void barrier(Transport& transport, const Group& group, const Exchange& exchange) {
  all_gather_bytes(transport, group, std::vector<std::size_t>(group.size(), 0), nullptr, nullptr,
                   exchange);
}

}  // namespace hetu::comm
