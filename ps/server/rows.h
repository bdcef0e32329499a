// Rows of sparse tables: which server has one, how messages carry them, and the sum of those that
// stand twice. Workers and servers share it. Read by row_table.h and by ps/client.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/initialize.h"
#include "ps/server/split.h"
#include "ps/server/update_rule.h"

namespace hetu::ps {

inline constexpr int kMostWidth = 1 << 16;  ///< elements of a row

/// How the rows of a sparse table begin: each element a function of the seed, the table's name and
/// its place in the table, as a worker's parameter of that name and shape would (ops/initialize.h).
struct RowsInit {
  Initializer values;
  std::uint64_t seed = 0;
  bool operator==(const RowsInit&) const = default;
};

/// Vectors of a sparse table, `ids.size()` x width.
struct Rows {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> counts;  ///< updates that each stands for; empty: one
  std::vector<float> values;
};

/// The same rows with ascending ids, each once: the sum of the vectors that had its id, added in
/// the order in which they stand there, float32. So the bits depend on nothing but `rows`.
Rows merge_rows(Rows rows, int width);

/// What is wrong with a sparse table of so many elements in rows of `width`; "" if nothing is.
std::string fault_of_rows(std::int64_t elements, int width, const UpdateRule& rule);

namespace server {

/// Row r is row r / servers of server r % servers: neighbours lie on different servers, so that
/// tables sorted by frequency, as vocabularies are, load all servers alike; ranges would not.
struct RowSplit {
  std::int64_t rows = 0;
  int servers = 1;

  int server(std::int64_t row) const { return static_cast<int>(row % servers); }
  std::int64_t local(std::int64_t row) const { return row / servers; }
  std::int64_t row(int server, std::int64_t local) const { return local * servers + server; }
  std::int64_t rows_of(int server) const { return (rows - server + servers - 1) / servers; }
};

/// Most rows of one message, with what may stand beside each: it is no longer than a part.
inline std::int64_t most_rows(int width) {
  return kPartElements * 4 / (2 * static_cast<std::int64_t>(sizeof(std::int64_t)) + 4 * width);
}

}  // namespace server
}  // namespace hetu::ps
