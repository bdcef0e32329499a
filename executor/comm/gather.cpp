#include "executor/comm/gather.h"

namespace hetu {

std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Exchange& exchange) {
  const comm::Group all = comm::everyone(transport);
  std::vector<double> lengths(all.size(), 0);
  lengths[transport.worker()] = static_cast<double>(mine.size());
  comm::sum_f64(transport, all, lengths.data(), lengths.size(), exchange);
  std::vector<std::size_t> bytes(all.size());
  std::size_t total = 0;
  for (std::size_t w = 0; w < all.size(); ++w)
    total += bytes[w] = static_cast<std::size_t>(lengths[w]);
  std::string joined(total, '\0');
  comm::all_gather_bytes(transport, all, bytes, mine.data(), joined.data(), exchange);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (const std::size_t length : bytes) {
    out.push_back(joined.substr(at, length));
    at += length;
  }
  return out;
}

}  // namespace hetu
