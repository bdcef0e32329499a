// Sparse tables: pushes and pulls of rows. Read by the store's own sources alone.
#pragma once
#include "ps/server/answers.h"
#include "ps/server/store_options.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

/// Takes messages about rows of tables.
class SparseTables {
 public:
  /// All must outlive it.
  SparseTables(Answers& answers, const StoreOptions& options, std::shared_ptr<Room> room)
      : answers_(answers), options_(options), room_(std::move(room)) {}

  void take(Seat& seat, const PushRows& push, const Payload& payload);
  void take(Seat& seat, const SetRows& set, const Payload& payload);
  void take(Seat& seat, const PullRows& pull, const Payload& payload);

  /// Applies the rounds that are whole, and answers the pulls that need wait no longer.
  void answer(TableState& table);

 private:
  Place* place_of(Seat& seat, int table);
  /// Why there is no room for what a message of `seat` adds; "" if there is.
  std::string refusal(const Seat& seat, const TableState& table, const RowsView& rows,
                      std::size_t message) const;
  void send_rows(Seat& seat, TableState& table, const PullRows& pull, const Bytes& asked);

  Answers& answers_;
  const StoreOptions& options_;
  const std::shared_ptr<Room> room_;
};

}  // namespace hetu::ps::server
