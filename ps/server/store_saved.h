// The pieces in which a store is saved, with their content and order. Read by store_saved.cpp and
// store_loaded.cpp.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ps/server/dense_tables.h"
#include "ps/server/store_options.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

/// Returns the whole store except its connections. Values are shared with the store.
std::vector<Piece> save(StoreState& store);

/// Writes and reads pieces with the same lists of fields. Each function binds every member of its
/// struct, so that the code doesn't compile if a new member is forgotten.
class Saved {
 public:
  /// Kind of a piece.
  enum class Of : std::uint8_t {
    Client,
    Table,
    Arriving,
    Part,
    Plane,
    Kept,
    Answered,
    Rows,
    Block,
    KeptRows,
    Membership,
    Early,
    Died
  };

  /// Begins to write a piece.
  explicit Saved(Of of) : to_(ByteWriter(kVersion, static_cast<std::uint8_t>(of))) {}
  /// Begins to read a piece.
  Saved(const Bytes& words, const Payload& values)
      : from_(ByteReader(words.data(), words.size())), values_(values) {
    of_ = static_cast<Of>(from_->head(kVersion));
  }

  /// Returns the written piece.
  Piece take(Payload values = {}) { return {to_->take(), std::move(values)}; }
  /// The store that pieces are loaded into.
  struct Target {
    StoreState& state;
    const DenseTables& dense;
    const StoreOptions& options;
  };
  /// Loads the piece that is being read. Throws Comm if it doesn't fit the store.
  void load_into(const Target& store);

  // Pieces of a table or part begin with its name and number. Connection state is not saved,
  // because lines restart.
  Saved& client(ClientSlot& client) {
    auto& [session, worker, peer, attempt, received, sent, heard_us, pushes, left, death,
           memberships] = client;
    return number(session).number(worker).number(pushes).flag(left).text(death);
  }
  // Returns a table as the message that opens it. Its content and its members are pieces of their
  // own.
  static Join opening(const TableState& table) {
    const auto& [name, elements, split, rule, members, arriving, parts, width, first, rows, share] =
        table;
    return {0, name, elements, static_cast<int>(members.size()), 0, rule, width, first};
  }
  // One plane of an incomplete part. The values are the piece's payload.
  Saved& arriving(int& plane, FirstPlanes& first) {
    auto& [expected, updates, planes] = first;
    return number(plane).number(expected).number(updates);
  }
  // Counts, clocks and waiting pulls. The values are the payload; states, kept pushes and answers
  // are pieces of their own.
  Saved& part(UpdateCounts& counted, Part& part) {
    auto& [state, clocks, waiting, answered] = part;
    counts(counted).all(clocks);
    return each(waiting, [&](Part::Waiting& one) {
      auto& [member, asked] = one;
      auto& [asked_table, asked_part, asked_number, least, after, plane] = asked;
      number(member).number(asked_table).number(asked_part).number(asked_number);
      number(least).number(after).number(plane);
    });
  }
  Saved& answered(Answered& one) {
    auto& [member, of_pull, plane, pushes, updates, values] = one;
    number(member).number(of_pull).number(plane);
    return number(pushes).number(updates);
  }
  // Rows and kept updates are pieces of their own. Waiting pulls aren't saved, because clients ask
  // again.
  Saved& rows(UpdateCounts& counted, RowsState& rows) {
    auto& [state, taken, clocks, waiting] = rows;
    return counts(counted).all(taken).all(clocks);
  }
  // The rows are the piece's payload.
  Saved& kept_rows(RowTable::KeptPiece& piece) {
    auto& [member, rate, last, rows] = piece;
    return number(member).number(rate).flag(last);
  }
  template <class T>
  Saved& number(T& value) {
    if (to_)
      to_->number(value);
    else
      value = from_->number<T>();
    return *this;
  }
  Saved& text(std::string& value) {
    if (to_)
      to_->text(value);
    else
      value = from_->text("text");
    return *this;
  }

 private:
  static constexpr std::uint8_t kVersion = 1;

  Saved& flag(bool& value) {
    auto byte = static_cast<std::uint8_t>(value);
    number(byte);
    value = byte != 0;
    return *this;
  }
  Saved& counts(UpdateCounts& counts) {
    auto& [pushes, rounds, updates] = counts;
    return number(pushes).number(rounds).number(updates);
  }
  Saved& all(std::vector<std::int64_t>& numbers) {
    return each(numbers, [&](std::int64_t& one) { number(one); });
  }
  template <class T, class Fields>
  Saved& each(std::vector<T>& values, const Fields& fields) {
    auto count = static_cast<std::uint32_t>(values.size());
    number(count);
    if (from_) values.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      if (from_) values.emplace_back();
      fields(values[i]);
    }
    return *this;
  }
  void load_client(const Target& store);
  void load_table(const Target& store) const;
  void load_arriving(const Target& store);
  void load_part(const Target& store);
  void load_plane(const Target& store);
  void load_kept(const Target& store);
  void load_answered(const Target& store);
  void load_rows(const Target& store);
  void load_block(const Target& store);
  void load_kept_rows(const Target& store);
  void load_membership(const Target& store);
  void load_early(const Target& store);
  void load_died(const Target& store);
  Join load_join() const;
  TableState& load_table_of(const Target& store);
  RowsState& load_rows_of(const Target& store);
  int load_index(const TableState& table);
  Part& load_part_of(const Target& store);
  int load_member(std::size_t members);
  PartValues load_values(const Target& store, std::int64_t elements) const;

  std::optional<ByteWriter> to_;
  std::optional<ByteReader> from_;
  Payload values_;
  Of of_ = Of::Client;
};

}  // namespace hetu::ps::server
