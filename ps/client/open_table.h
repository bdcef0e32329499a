// A table that a client has opened, and its pull that is under way. Read by client_state.h.
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

/// A message, and the server that it is for.
struct Addressed {
  int server = 0;
  server::FromClient message;
  server::Payload payload = {};
};

/// Memory of updates that every server has, for the next ones.
class SpareValues : public std::enable_shared_from_this<SpareValues> {
 public:
  /// So many values, unset.
  std::vector<float> take(std::size_t elements);
  /// Shares values until the last reader lets go of them, in any thread.
  std::shared_ptr<const std::vector<float>> share(std::vector<float> values);

 private:
  std::mutex mutex_;
  std::vector<std::vector<float>> free_;
};

/// Knows how a table lies on servers; sends nothing.
struct OpenTable {
  /// The rows of a pull that one message asks for.
  struct RowChunk {
    int server = 0;
    std::vector<std::int64_t> places;  ///< among those of the pull
    bool newer = false;                ///< only those that are
  };
  /// A pull that is open.
  struct OpenPull {
    std::int64_t least = 0;
    float* into = nullptr;
    int missing = 0;  ///< parts, or chunks
    std::vector<bool> has;
    std::vector<RowChunk> chunks;  ///< of a sparse table
    std::int64_t* versions = nullptr;
    Pulled found;
    std::string failure;
    std::optional<std::string> waits;  ///< for whom
  };

  OpenTable(int number_of_client, Table table, int server_count);
  /// The same of a sparse table.
  OpenTable(int number_of_client, const SparseTable& sparse, int server_count);

  bool is_sparse() const { return width > 0; }
  /// Whether messages of a server about a part, or about rows (`part` is then the server), can be
  /// of this table.
  bool is_at(int server, int part) const;
  void check_ids(const std::int64_t* ids, std::int64_t count) const;

  /// The messages that open it as `member`.
  std::vector<Addressed> joins(int member) const;
  /// Its first values, and the optimizer's states, for a server that has none.
  std::vector<Addressed> first_values(int server) const;
  /// An update of all parts, its number being the clock; `values` are shared.
  std::vector<Addressed> update(std::vector<float> values, double rate);
  /// The header of a piece of an update of rows, by its number at its server.
  using Piece = std::function<server::FromClient(std::int64_t number, bool is_last)>;
  /// An update of rows: at least one message to every server, whose clock of this member rises with
  /// the others'.
  std::vector<Addressed> row_update(const Rows& update, const Piece& header);
  /// Begins a pull of all parts. `after`: own updates that it must have.
  std::vector<Addressed> begin_pull(std::int64_t least, float* into, std::int64_t after, int plane);
  /// Begins a pull of rows. Throws InvalidArgument: too many.
  std::vector<Addressed> begin_pull(std::int64_t least, const RowPull& asked);
  /// Values of the open pull have come; false: of one before. Throws Comm: not what was asked for.
  bool take(const server::Values& values, const server::Payload& payload);
  bool take(int server, const server::RowValues& values, const server::Payload& payload);
  /// The server of something that the open pull lacks, and its part, or the server itself.
  std::pair<int, int> first_missing() const;

  const int number;  ///< the client's
  const Table about;
  const server::Split split;
  const int servers;
  const int width = 0;                     ///< of a sparse table; else 0
  const server::RowSplit rows = {};        ///< of a sparse table
  const RowsInit first_rows = {};          ///< of a sparse table
  std::vector<std::int64_t> pieces;        ///< of a sparse table, per server: sent
  const float* initial = nullptr;          ///< while it is opened
  const OptimizerStates* first = nullptr;  ///< the same
  int opening = 0;                         ///< servers and parts that have not answered yet
  std::string failure;                     ///< why it cannot be opened
  std::vector<bool> joined;                ///< per server
  std::int64_t clock = 0;
  std::int64_t pulls = 0;
  std::optional<OpenPull> pull;
  const std::shared_ptr<SpareValues> spare = std::make_shared<SpareValues>();
};

}  // namespace hetu::ps::client
