#include "net/transport/gather.h"

namespace hetu {

std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Exchange& exchange) {
  return gather_texts(mine, transport, comm::everyone(transport), exchange);
}

std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Group& group, const comm::Exchange& exchange) {
  const comm::Gathered found =
      comm::gather_bytes(transport, group, mine.data(), mine.size(), exchange);
  std::vector<std::string> out;
  const auto* at = reinterpret_cast<const char*>(found.all.data());
  for (const std::size_t length : found.bytes_of) {
    out.emplace_back(at, length);
    at += length;
  }
  return out;
}

}  // namespace hetu
