#include "ps/server/rows_view.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace hetu::ps::server {
namespace {

template <class T>
void make_room(std::vector<T>& in, std::size_t more) {
  if (in.size() + more > in.capacity()) in.reserve(std::max(in.size() + more, 2 * in.capacity()));
}

}  // namespace

std::int64_t RowsView::id(std::int64_t i) const { return number_at<std::int64_t>(ids, i); }
std::uint32_t RowsView::updates(std::int64_t i) const {
  return counts == nullptr ? 1 : number_at<std::uint32_t>(counts, i);
}

bool view_rows(const Payload& payload, int width, bool counted, RowsView& rows) {
  const std::size_t each = sizeof(std::int64_t) + (counted ? sizeof(std::uint32_t) : 0) +
                           static_cast<std::size_t>(width) * sizeof(float);
  if (payload.bytes % each != 0) return false;
  rows.count = static_cast<std::int64_t>(payload.bytes / each);
  const auto count = static_cast<std::size_t>(rows.count);
  rows.ids = payload.data;
  rows.counts = counted ? payload.data + count * sizeof(std::int64_t) : nullptr;
  rows.values = payload.data + payload.bytes - count * static_cast<std::size_t>(width) * 4;
  return true;
}

RowsView view_of(const Rows& rows) {
  return {static_cast<std::int64_t>(rows.ids.size()),
          reinterpret_cast<const std::byte*>(rows.ids.data()),
          rows.counts.empty() ? nullptr : reinterpret_cast<const std::byte*>(rows.counts.data()),
          reinterpret_cast<const std::byte*>(rows.values.data())};
}

Payload payload_of(const Rows& rows, std::size_t begin, std::size_t end, int width) {
  const auto bytes = std::make_shared<Bytes>();
  const auto put = [&](const auto* numbers, std::size_t each) {
    const auto* from = reinterpret_cast<const std::byte*>(numbers + begin * each);
    bytes->insert(bytes->end(), from, from + (end - begin) * each * sizeof *numbers);
  };
  put(rows.ids.data(), 1);
  put(rows.counts.data(), 1);
  put(rows.values.data(), static_cast<std::size_t>(width));
  return {bytes->data(), bytes->size(), bytes};
}

void append(Rows& to, const RowsView& rows, int width) {
  make_room(to.ids, static_cast<std::size_t>(rows.count));
  make_room(to.counts, static_cast<std::size_t>(rows.count));
  make_room(to.values, static_cast<std::size_t>(rows.count * width));
  for (std::int64_t i = 0; i < rows.count; ++i) {
    to.ids.push_back(rows.id(i));
    to.counts.push_back(rows.updates(i));
  }
  const std::size_t before = to.values.size();
  to.values.resize(before + static_cast<std::size_t>(rows.count * width));
  if (rows.count == 0) return;
  std::memcpy(to.values.data() + before, rows.values,
              static_cast<std::size_t>(rows.count * width) * sizeof(float));
}

void append(Rows& to, const Rows& rows) {
  to.ids.insert(to.ids.end(), rows.ids.begin(), rows.ids.end());
  to.counts.insert(to.counts.end(), rows.counts.begin(), rows.counts.end());
  to.values.insert(to.values.end(), rows.values.begin(), rows.values.end());
}

}  // namespace hetu::ps::server
