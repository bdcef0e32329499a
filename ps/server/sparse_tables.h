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
  SparseTables(Answers& answers, const StoreOptions& options)
      : answers_(answers), options_(options) {}

  void take(Seat& seat, const PushRows& push, const Payload& payload);
  void take(Seat& seat, const SetRows& set, const Payload& payload);
  void take(Seat& seat, const PullRows& pull, const Payload& payload);

  /// Applies the rounds that are whole, and answers the pulls that need wait no longer.
  void answer(TableState& table);

 private:
  Place* place_of(Seat& seat, int table);
  void send_rows(Seat& seat, RowsState& rows, const PullRows& pull, const Bytes& asked);

  Answers& answers_;
  const StoreOptions& options_;
};

}  // namespace hetu::ps::server
