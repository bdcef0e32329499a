// A reduce-scatter followed by an all-gather, with a fixed order of additions. With three members,
// the data is cut into shards 0, 1 and 2. Member 1 receives the others' shards 1 into `room`,
// computes shard1(0) + shard1(1) + shard1(2) in this order, and sends the sum back. The bits are
// therefore fixed, unlike those of NCCL's own all-reduce.
#include "executor/direct/direct_sum.h"

#include <algorithm>
#include <vector>

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

}  // namespace

std::int64_t sum_room(const DirectSum& sum) {
  const auto others = static_cast<std::int64_t>(sum.order.size()) - 1;
  return others * part_of(sum, own_place(sum)).elements * kSize;
}

void put_sum(const DirectSum& sum, const TensorKernels& kernels, std::byte* in,
             comm::NcclGroup& group, Queue& queue) {
  const auto members = static_cast<std::int64_t>(sum.order.size());
  const std::int64_t me = own_place(sum);
  const Part own = part_of(sum, me);
  auto* const room = reinterpret_cast<float*>(in);
  std::vector<float*> pieces(sum.order.size(), own.data);  // my shard, by member
  std::vector<comm::NcclMove> there, back;
  for (std::int64_t p = 0; p < members; ++p) {
    if (p == me) continue;
    const int peer = sum.order[p];
    pieces[p] = room + (p < me ? p : p - 1) * own.elements;
    add(there, true, peer, part_of(sum, p));
    add(there, false, peer, {pieces[p], own.elements});
    add(back, true, peer, own);
    add(back, false, peer, part_of(sum, p));
  }
  group.exchange(there, queue.stream(), "chunks of a sum");
  // Adds into the first member's shard, because the sum begins with it; every other shard is only
  // read.
  if (own.elements > 0)
    queue.run([pieces, n = own.elements, add_to = kernels.add](AddressMap at) {
      for (std::size_t p = 1; p < pieces.size(); ++p) add_to(at(pieces[0]), at(pieces[p]), n);
    });
  queue.copy(own.data, pieces[0], own.elements * kSize);
  group.exchange(back, queue.stream(), "a sum");
}

}  // namespace hetu
