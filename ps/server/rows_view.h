// Rows as messages carry them, and as servers keep them in between. Read by row_table.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ps/server/messages.h"
#include "ps/server/rows.h"

namespace hetu::ps::server {

/// Returns element i of an array of any alignment.
template <class T>
T number_at(const std::byte* numbers, std::int64_t i) {
  T value;
  std::memcpy(&value, numbers + i * static_cast<std::int64_t>(sizeof(T)), sizeof value);
  return value;
}

/// A view of the rows of a message: local ids, optional counts, and vectors, of any alignment.
struct RowsView {
  std::int64_t count = 0;
  const std::byte* ids = nullptr;
  const std::byte* counts = nullptr;  ///< nullptr: one update each
  const std::byte* values = nullptr;

  /// Returns the local id of row i.
  std::int64_t id(std::int64_t i) const;
  /// Returns the number of updates that row i stands for.
  std::uint32_t updates(std::int64_t i) const;
};

/// Views a payload as rows. Returns false if no number of rows has the payload's length.
bool view_rows(const Payload& payload, int width, bool counted, RowsView& rows);

/// Returns a view of kept rows, as if they came in a message.
RowsView view_of(const Rows& rows);

/// Encodes rows `begin` to `end` as a message carries them, with counts.
Payload payload_of(const Rows& rows, std::size_t begin, std::size_t end, int width);

/// Appends rows, each with the number of its updates. Throws bad_alloc, in which case nothing has
/// been appended.
void append(Rows& to, const RowsView& rows, int width);
void append(Rows& to, const Rows& rows);

}  // namespace hetu::ps::server
