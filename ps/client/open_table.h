// A table that a client has opened, and its current pull. Read by client_state.h.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps/client/parameter_client.h"
#include "ps/server/messages.h"
#include "ps/server/split.h"

namespace hetu::ps::client {

/// A message and the server that it is for.
struct Addressed {
  int server = 0;
  server::FromClient message;
  server::Payload payload = {};
};

/// Recycles the memory of updates that every server has acknowledged.
class SpareValues : public std::enable_shared_from_this<SpareValues> {
 public:
  /// Returns a vector of `elements` unspecified values.
  std::vector<float> take(std::size_t elements);
  /// Shares values until the last reader releases them, in any thread.
  std::shared_ptr<const std::vector<float>> share(std::vector<float> values);

 private:
  std::mutex mutex_;
  std::vector<std::vector<float>> free_;
};

/// A table's distribution over servers, and the state of its current pull. Builds messages, but
/// sends none.
struct OpenTable {
  /// Rows of a pull that one message asks for.
  struct RowChunk {
    int server = 0;
    std::vector<std::int64_t> places;  ///< indices among the rows of the pull
    bool newer = false;                ///< true if the message asks only for newer rows
  };
  /// A pull that is not finished.
  struct OpenPull {
    std::int64_t least = 0;
    float* into = nullptr;
    int missing = 0;  ///< parts, or chunks of a sparse table
    std::vector<bool> has;
    std::vector<RowChunk> chunks;  ///< only of a sparse table
    std::int64_t* versions = nullptr;
    Pulled found;
    std::string failure;
    std::optional<std::string> waits;  ///< names of the members that it waits for
  };

  /// Creates the state of a dense table over `server_count` servers.
  OpenTable(int number_of_client, Table table, int server_count);
  /// As above, for a sparse table.
  OpenTable(int number_of_client, const SparseTable& sparse, int server_count);

  /// Returns true for a sparse table.
  bool is_sparse() const { return width > 0; }
  /// Returns true if messages of a server about a part belong to this table. For rows, `part` is
  /// the server's number.
  bool is_at(int server, int part) const;
  /// Checks that ids are rows of the table. Throws InvalidArgument.
  void check_ids(const std::int64_t* ids, std::int64_t count) const;

  /// Returns the messages that open the table as `member`.
  std::vector<Addressed> joins(int member) const;
  /// Returns initial values and optimizer states for a server that has none.
  std::vector<Addressed> first_values(int server) const;
  /// Returns an update of all parts and increases the clock, which is the update's number. The
  /// messages share `values`.
  std::vector<Addressed> update(std::vector<float> values, double rate);
  /// Makes the header of a piece of a row update from its number at its server.
  using Piece = std::function<server::FromClient(std::int64_t number, bool is_last)>;
  /// Returns an update of rows. Every server gets at least one message, so that this member's clock
  /// increases equally on all of them.
  std::vector<Addressed> row_update(const Rows& update, const Piece& header);
  /// Begins a pull of all parts. `after`: own updates that the values must contain.
  std::vector<Addressed> begin_pull(std::int64_t least, float* into, std::int64_t after, int plane);
  /// Begins a pull of rows. Throws InvalidArgument for too many rows.
  std::vector<Addressed> begin_pull(std::int64_t least, const RowPull& asked);
  /// Takes values of the current pull. Returns false if they belong to an earlier pull. Throws Comm
  /// if they are not what was asked for.
  bool take(const server::Values& values, const server::Payload& payload);
  /// As above, for rows.
  bool take(int server, const server::RowValues& values, const server::Payload& payload);
  /// Returns the server and the part that the pull lacks. For a sparse table both are the server.
  std::pair<int, int> first_missing() const;

  const int number;  ///< the client's number of the table
  const Table about;
  const server::Split split;
  const int servers;
  const int width = 0;                     ///< row width of a sparse table; 0: dense
  const server::RowSplit rows = {};        ///< only of a sparse table
  const RowsInit first_rows = {};          ///< only of a sparse table
  std::vector<std::int64_t> pieces;        ///< only of a sparse table, per server: messages sent
  const float* initial = nullptr;          ///< only while the table is being opened
  const OptimizerStates* first = nullptr;  ///< likewise
  int opening = 0;                         ///< servers and parts that have not answered yet
  std::string failure;                     ///< why the table can't be opened
  std::vector<bool> joined;                ///< per server
  std::int64_t clock = 0;
  std::int64_t pulls = 0;
  std::optional<OpenPull> pull;
  const std::shared_ptr<SpareValues> spare = std::make_shared<SpareValues>();
};

}  // namespace hetu::ps::client
