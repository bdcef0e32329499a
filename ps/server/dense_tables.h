// Dense tables: first values, pushes and pulls of parts. Read by the store's own sources alone.
#pragma once
#include <functional>
#include <memory>

#include "ps/server/answers.h"
#include "ps/server/store_options.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

/// Takes messages about parts of tables.
class DenseTables {
 public:
  /// All must outlive it.
  DenseTables(Answers& answers, const StoreOptions& options, std::shared_ptr<Room> room)
      : answers_(answers), options_(options), pool_(std::make_shared<BlockPool>(std::move(room))) {}

  void take(Seat& seat, const Init& init, const Payload& payload);
  void take(Seat& seat, const Push& push, const Payload& payload);
  void take(Seat& seat, const Pull& pull);
  void take(Seat& seat, const Got& got);
  /// Where a message about a part leads; nullptr, and the message dropped, if no worker of ours
  /// sends it. `payload`, unless it is null: must have as many values as the part.
  Place* place_of(Seat& seat, int table, int part, const Payload* payload = nullptr);

  /// Applies the rounds of a part that are whole, and answers the pulls that need wait no longer.
  void answer(TableState& table, int part);

  Part& make_part(TableState& table, int part, FirstPlanes first) const;
  PartValues values_of(const Payload& payload, std::int64_t elements) const {
    return {payload.data, elements, pool_};
  }

 private:
  bool take_first(TableState& table, const Init& init, const Payload& payload) const;
  void send_values(Seat& seat, const Pull& pull, const Answered& answer);

  Answers& answers_;
  const StoreOptions& options_;
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace hetu::ps::server
