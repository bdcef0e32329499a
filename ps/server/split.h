// The rule by which a table is cut into parts and parts are assigned to servers. Workers and
// servers share it. Read by store.h and by ps/client.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hetu::ps::server {

/// Most elements of a part: 4 MiB of float32. A message holds one part, so that a heartbeat never
/// waits behind more than that.
inline constexpr std::int64_t kPartElements = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 38;  ///< of a table: 1 TiB
inline constexpr int kMostServers = 256;

/// The parts of a table: equal ranges in the order of its elements. Each server has the same number
/// of parts, which are contiguous. A table with fewer elements than servers has one element per
/// part.
class Split {
 public:
  /// Cuts a table. `elements` is 1 to kMostElements and `servers` is 1 to kMostServers.
  Split(std::int64_t elements, int servers)
      : elements_(elements),
        servers_(servers),
        parts_(static_cast<int>(std::min(elements, servers * rounds(elements, servers)))) {}

  int parts() const { return parts_; }
  /// Returns the first element of a part. begin(parts()) is the end of the table.
  std::int64_t begin(int part) const { return elements_ * part / parts_; }
  std::int64_t elements(int part) const { return begin(part + 1) - begin(part); }
  /// Returns the first part of a server. first(servers) is parts().
  int first(int server) const {
    const std::int64_t product = static_cast<std::int64_t>(server) * parts_;
    return static_cast<int>((product + servers_ - 1) / servers_);
  }
  int server(int part) const {
    return static_cast<int>(static_cast<std::int64_t>(part) * servers_ / parts_);
  }

 private:
  static std::int64_t rounds(std::int64_t elements, int servers) {
    const std::int64_t most = servers * kPartElements;
    return (elements + most - 1) / most;
  }
  std::int64_t elements_;
  int servers_;
  int parts_;
};

}  // namespace hetu::ps::server
