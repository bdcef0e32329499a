// A reduce-scatter followed by an all-gather, with a fixed order of additions. With three members,
// the data is cut into shards 0, 1 and 2. Member 1 receives the others' shards 1 into `room`,
// computes shard1(0) + shard1(1) + shard1(2) in this order, and sends the sum back. The bits are
// therefore fixed, unlike those of NCCL's own all-reduce.
#include "executor/direct/direct_sum.h"

#include <algorithm>
#include <vector>

#include "executor/device/add_in_order.h"

namespace hetu {
namespace {

constexpr std::int64_t kSize = sizeof(float);

struct Part {
  float* data = nullptr;
  std::int64_t elements = 0;
  std::size_t bytes() const { return static_cast<std::size_t>(elements * kSize); }
};

Part part_of(const DirectSum& sum, std::int64_t member) {
  const auto members = static_cast<std::int64_t>(sum.order.size());
  const std::int64_t begin = sum.elements * member / members;
  return {sum.data + begin, sum.elements * (member + 1) / members - begin};
}

std::int64_t own_place(const DirectSum& sum) {
  return std::find(sum.order.begin(), sum.order.end(), sum.worker) - sum.order.begin();
}

/// Adds a message unless it is empty. Both sides list their messages in the order of the members.
void add(std::vector<comm::NcclMove>& moves, bool is_send, int peer, const Part& part) {
  if (part.elements > 0) moves.push_back({is_send, peer, part.data, part.bytes()});
}

// Returns the given terms, or else each member's data.
comm::Terms terms_of(const DirectSum& sum) {
  return sum.terms.order.empty() ? comm::term_each(sum.order, sum.worker, sum.data) : sum.terms;
}

}  // namespace

std::int64_t sum_room(const DirectSum& sum) {
  const std::vector<int> members = terms_of(sum).members;
  const std::int64_t me = own_place(sum);
  const auto others =
      std::count_if(members.begin(), members.end(), [me](int m) { return m != me; });
  return others * part_of(sum, me).elements * kSize;
}

// A piece is a member's shard of a term of another member. Both sides of a connection list its
// pieces in the order of the terms.
void put_sum(const DirectSum& sum, const TensorKernels& kernels, std::byte* in,
             comm::NcclGroup& group, Queue& queue) {
  const auto members = static_cast<std::int64_t>(sum.order.size());
  const std::int64_t me = own_place(sum);
  const Part own = part_of(sum, me);
  const comm::Terms terms = terms_of(sum);
  auto* room = reinterpret_cast<float*>(in);
  std::vector<float*> pieces;  // my shard, by term
  std::vector<comm::NcclMove> there, back;
  for (std::size_t t = 0; t < terms.members.size(); ++t) {
    const int member = terms.members[t];
    if (member != me) {
      pieces.push_back(room);
      room += own.elements;
      add(there, false, sum.order[member], {pieces.back(), own.elements});
      continue;
    }
    auto* const data = static_cast<float*>(const_cast<void*>(terms.data[t]));  // NOLINT: see sum()
    pieces.push_back(data + (own.data - sum.data));
    for (std::int64_t p = 0; p < members; ++p) {
      const Part part = part_of(sum, p);
      if (p != me) add(there, true, sum.order[p], {data + (part.data - sum.data), part.elements});
    }
  }
  for (std::int64_t p = 0; p < members; ++p) {
    if (p == me) continue;
    add(back, true, sum.order[p], own);
    add(back, false, sum.order[p], part_of(sum, p));
  }
  group.exchange(there, queue.stream(), "chunks of a sum");
  if (own.elements > 0)
    queue.copy(own.data, add_in_order(queue, kernels, pieces, terms.order, own.elements),
               own.elements * kSize);
  group.exchange(back, queue.stream(), "a sum");
}

}  // namespace hetu
