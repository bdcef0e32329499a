// Sum of rows. Each member sends the number of its rows to every other member, and then their ids
// and values. For example, members with rows {2, 7} and {7, 9} both end with {2, 7, 9}, and row 7
// is the sum in group order.
#include "executor/sync/row_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ops/tensor_kernels.h"

namespace hetu {

RowsOf RowSum::Packed::rows() const {
  const std::byte* const numbers = bytes.data();
  return {reinterpret_cast<const std::int32_t*>(numbers),
          reinterpret_cast<const float*>(numbers + count * 4), count};
}

std::size_t RowSum::bytes_of(std::int64_t count) const {
  return static_cast<std::size_t>(count * 4 * (1 + bucket_.rows.width));
}

RowSum::RowSum(comm::Transport& transport, comm::Group group, const Bucket& bucket, comm::Tag tag)
    : transport_(transport),
      group_(std::move(group)),
      bucket_(bucket),
      tag_(tag),
      packed_(group_.size()),
      counts_(group_.size()) {
  const auto mine = std::find(group_.begin(), group_.end(), transport_.worker());
  HETU_ASSERT(mine != group_.end() && bucket_.rows.bits != nullptr);
  own_ = static_cast<std::size_t>(mine - group_.begin());
  if (group_.size() == 1) return;
  pack();
  const Packed& own = packed_[own_];
  for (std::size_t m = 0; m < group_.size(); ++m) {
    if (m == own_) continue;
    counts_[m] = transport_.recv(group_[m], tag_, &packed_[m].count, sizeof(std::int64_t));
    sends_.push_back(transport_.send(group_[m], tag_, &own.count, sizeof(std::int64_t)));
    if (own.count > 0)
      sends_.push_back(transport_.send(group_[m], tag_, own.bytes.data(), own.bytes.size()));
  }
}

void RowSum::pack() {
  const TouchedRows& touched = bucket_.rows;
  std::vector<std::int32_t> numbers;
  for (std::int64_t word = 0; word < touched.words(); ++word)
    touched.each_of(word,
                    [&](std::int64_t row) { numbers.push_back(static_cast<std::int32_t>(row)); });
  Packed& own = packed_[own_];
  own.count = static_cast<std::int64_t>(numbers.size());
  own.bytes.resize(bytes_of(own.count));
  const std::size_t width = static_cast<std::size_t>(touched.width) * 4;
  std::byte* to = std::copy_n(reinterpret_cast<const std::byte*>(numbers.data()),
                              numbers.size() * 4, own.bytes.data());
  for (const std::int32_t row : numbers) {
    std::memcpy(to, static_cast<const float*>(bucket_.data) + row * touched.width, width);
    to += width;
  }
}

// Waits for the rows of all members and adds them. All sends have started before a member waits, so
// members may start their sums in different orders.
void RowSum::finish(comm::WaitPurpose what) {
  if (group_.size() == 1) return;
  std::vector<std::unique_ptr<comm::Request>> bodies(group_.size());
  for (std::size_t m = 0; m < group_.size(); ++m) {
    if (m == own_) continue;
    transport_.wait(*counts_[m], what);
    Packed& from = packed_[m];
    if (from.count < 0 || from.count > bucket_.rows.rows)
      fail(Code::Comm, "{}: worker {} sent {} rows of a table that has {} rows", what.text(),
           group_[m], from.count, bucket_.rows.rows);
    from.bytes.resize(bytes_of(from.count));
    if (from.count > 0)
      bodies[m] = transport_.recv(group_[m], tag_, from.bytes.data(), from.bytes.size());
  }
  for (const auto& body : bodies)
    if (body) transport_.wait(*body, what);
  const TensorKernels& kernels = cpu_tensor_kernels();
  auto* const sum = static_cast<float*>(bucket_.data);
  kernels.clear_rows(sum, bucket_.rows);
  for (const Packed& from : packed_) kernels.scatter_rows(sum, bucket_.rows, from.rows());
}

bool RowSum::is_sent() const {
  return std::all_of(sends_.begin(), sends_.end(), [](const auto& send) { return send->done(); });
}

}  // namespace hetu
