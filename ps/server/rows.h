// Rows of sparse tables: their distribution over servers, their form in messages, and the sum of
// rows with equal ids. Shared by workers and servers. Read by row_table.h and by ps/client.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/initialize.h"
#include "ps/server/split.h"
#include "ps/server/update_rule.h"

namespace hetu::ps {

inline constexpr int kMostWidth = 1 << 16;  ///< most elements of a row

/// Initial values of a sparse table. Each element is a function of the seed, the table's name and
/// its position in the table. A worker's parameter of that name and shape starts with the same
/// values (ops/initialize.h).
struct RowsInit {
  Initializer values;
  std::uint64_t seed = 0;
  bool operator==(const RowsInit&) const = default;
};

/// Vectors of a sparse table, of shape `ids.size()` x width.
struct Rows {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> counts;  ///< updates that each row stands for; empty: one each
  std::vector<float> values;
};

/// Sorts rows by id and sums the vectors of equal ids in float32, in their order in `rows`. The
/// resulting bits depend only on `rows`.
Rows merge_rows(Rows rows, int width);

/// Returns what is wrong with a sparse table of `elements` elements in rows of `width`, or "" if
/// nothing is.
std::string fault_of_rows(std::int64_t elements, int width, const UpdateRule& rule);

namespace server {

/// Maps rows to servers: row r is local row r / servers of server r % servers. Neighbouring rows
/// are on different servers. Tables sorted by frequency, as vocabularies are, therefore load all
/// servers evenly, which contiguous ranges would not.
struct RowSplit {
  std::int64_t rows = 0;
  int servers = 1;

  int server(std::int64_t row) const { return static_cast<int>(row % servers); }
  std::int64_t local(std::int64_t row) const { return row / servers; }
  std::int64_t row(int server, std::int64_t local) const { return local * servers + server; }
  std::int64_t rows_of(int server) const { return (rows - server + servers - 1) / servers; }
};

/// Returns the most rows of one message, including ids and versions: the message is no longer than
/// a part.
inline std::int64_t most_rows(int width) {
  return kPartElements * 4 / (2 * static_cast<std::int64_t>(sizeof(std::int64_t)) + 4 * width);
}

}  // namespace server
}  // namespace hetu::ps
