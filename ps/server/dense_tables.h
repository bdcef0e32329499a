// Dense tables: initial values, pushes and pulls of parts. Read by the store's own sources only.
#pragma once
#include <functional>
#include <memory>

#include "ps/server/answers.h"
#include "ps/server/store_options.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

/// Processes messages about parts of dense tables.
class DenseTables {
 public:
  /// Keeps references to all arguments, which must outlive this object.
  DenseTables(Answers& answers, const StoreOptions& options, std::shared_ptr<MemoryBudget> budget)
      : answers_(answers),
        options_(options),
        pool_(std::make_shared<BlockPool>(std::move(budget))) {}

  /// Takes an initial plane of a part. Ignores it if the part has values or the plane already.
  /// Answers Initialised.
  void take(ClientSlot& client, const Init& init, const Payload& payload);
  /// Takes a member's next update of a part and acknowledges the newest one that the part has.
  void take(ClientSlot& client, const Push& push, const Payload& payload);
  /// Answers a pull now or when the clocks allow it. Repeats the answer to a repeated pull.
  void take(ClientSlot& client, const Pull& pull);
  /// Frees the kept answer to a pull that the member has received.
  void take(ClientSlot& client, const Got& got);
  /// Returns the client's membership in the table, or nullptr after dropping a message that no
  /// worker of this job sends. A non-null `payload` must have as many values as the part.
  TableMembership* membership_of(ClientSlot& client, int table, int part,
                                 const Payload* payload = nullptr);

  /// Applies the complete rounds of a part and answers the pulls whose clocks are reached.
  void answer(TableState& table, int part);

  /// Adds a part with its initial planes to the table.
  Part& make_part(TableState& table, int part, FirstPlanes first) const;
  /// Copies a payload of `elements` values into a block of the pool.
  PartValues values_of(const Payload& payload, std::int64_t elements) const {
    return {payload.data, elements, pool_};
  }

 private:
  // Takes a plane of a part without values. Returns false if the plane is there already.
  bool take_first(TableState& table, const Init& init, const Payload& payload) const;
  void send_values(ClientSlot& client, const Pull& pull, const Answered& answer);

  Answers& answers_;
  const StoreOptions& options_;
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace hetu::ps::server
