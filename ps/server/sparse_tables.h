// Sparse tables: pushes and pulls of rows. Read by the store's own sources only.
#pragma once
#include "ps/server/answers.h"
#include "ps/server/store_options.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

/// Processes messages about rows of sparse tables.
class SparseTables {
 public:
  /// Keeps references to all arguments, which must outlive this object.
  SparseTables(Answers& answers, const StoreOptions& options, std::shared_ptr<MemoryBudget> budget)
      : answers_(answers), options_(options), budget_(std::move(budget)) {}

  /// Takes the next piece of a member's update and acknowledges the newest piece.
  void take(ClientSlot& client, const PushRows& push, const Payload& payload);
  /// Replaces a plane of some rows, under the same numbering as PushRows.
  void take(ClientSlot& client, const SetRows& set, const Payload& payload);
  /// Answers a pull of rows now, or when the clocks and the reader allow it.
  void take(ClientSlot& client, const PullRows& pull, const Payload& payload);

  /// Applies the complete rounds and answers the pulls whose clocks are reached.
  void answer(TableState& table);

 private:
  TableMembership* membership_of(ClientSlot& client, int table);
  /// Returns why there is no memory for a message of `message` bytes from `client`, or "" if there
  /// is.
  std::string refusal(const ClientSlot& client, const TableState& table, const RowsView& rows,
                      std::size_t message) const;
  void send_rows(ClientSlot& client, TableState& table, const PullRows& pull, const Bytes& asked);

  Answers& answers_;
  const StoreOptions& options_;
  const std::shared_ptr<MemoryBudget> budget_;
};

}  // namespace hetu::ps::server
