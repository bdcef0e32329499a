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

/// Each non-empty message, in the order of the members on both sides.
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
  std::vector<float*> pieces(sum.order.size(), own.data);  // of my part, by member
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
  group.exchange(there, queue.stream(), "pieces of a sum");
  // Into the first member's piece, since it begins the sum; what is added to it is never it.
  if (own.elements > 0)
    queue.run([pieces, n = own.elements, add_to = kernels.add](Reach at) {
      for (std::size_t p = 1; p < pieces.size(); ++p) add_to(at(pieces[0]), at(pieces[p]), n);
    });
  queue.copy(own.data, pieces[0], own.elements * kSize);
  group.exchange(back, queue.stream(), "a sum");
}

}  // namespace hetu
