// Rows as messages carry them, and as they are kept in between. Read by row_table.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ps/server/messages.h"
#include "ps/server/rows.h"

namespace hetu::ps::server {

/// Number i of some that lie anywhere.
template <class T>
T number_at(const std::byte* numbers, std::int64_t i) {
  T value;
  std::memcpy(&value, numbers + i * static_cast<std::int64_t>(sizeof(T)), sizeof value);
  return value;
}

/// Rows as a message carries them: local ids, counts if there are some, vectors; of any alignment.
struct RowsView {
  std::int64_t count = 0;
  const std::byte* ids = nullptr;
  const std::byte* counts = nullptr;  ///< nullptr: one update each
  const std::byte* values = nullptr;

  std::int64_t id(std::int64_t i) const;
  std::uint32_t updates(std::int64_t i) const;
};

/// The rows in a payload; false: its length fits none.
bool view_rows(const Payload& payload, int width, bool counted, RowsView& rows);

/// Kept rows as a message would have them.
RowsView view_of(const Rows& rows);

/// Rows `begin` to `end` as a message carries them, with counts.
Payload payload_of(const Rows& rows, std::size_t begin, std::size_t end, int width);

/// Appends rows, each with the number of its updates; all or, without memory (bad_alloc), none.
void append(Rows& to, const RowsView& rows, int width);
void append(Rows& to, const Rows& rows);

}  // namespace hetu::ps::server
