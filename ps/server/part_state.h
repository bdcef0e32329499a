// One part of a table: its values, what an optimizer keeps beside them, and how pushes change both.
// Read by store.h.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ps/server/update_rule.h"
#include "ps/server/values.h"

namespace hetu::ps::server {

/// What a part begins with, until all planes have come.
struct FirstPlanes {
  int expected = 1;
  std::int64_t updates = 0;  ///< applied before, for bias correction
  std::map<int, PartValues> planes;

  bool is_whole() const { return static_cast<int>(planes.size()) == expected; }
};

/// A function of the pushes in the order in which they are taken, of nothing else.
class PartState {
 public:
  /// `rule` must outlive it. `begin`: the part's first element within the table. Planes that
  /// `first` does not have are zeros.
  PartState(const UpdateRule& rule, std::int64_t begin, FirstPlanes first, int members,
            std::shared_ptr<BlockPool> pool);

  /// The next push of a member, 4 bytes per element, of any alignment: applied at once, or kept for
  /// its round. `rate` is of no use without an optimizer.
  void take(int member, double rate, const std::byte* values);
  /// Applies the rounds up to `slowest`, the least clock of the members that are waited for, and
  /// says whose pushes they were made of.
  void apply_rounds(std::int64_t slowest,
                    const std::function<void(int member, std::int64_t round)>& heard);
  struct Kept {
    double rate = 0;
    std::shared_ptr<float> values;
  };
  /// Pushes of a member that wait for their round. Who holds their values holds them unchanged.
  const std::deque<Kept>& kept(int member) const { return kept_[static_cast<std::size_t>(member)]; }

  /// What a part takes beside the values of its planes.
  static std::int64_t overhead(int members) { return 1024 * static_cast<std::int64_t>(members); }

  /// Values (plane 0) or a state as they are now.
  Payload lend(int plane) { return planes_[static_cast<std::size_t>(plane)].lend(); }
  int planes() const { return static_cast<int>(planes_.size()); }
  std::int64_t elements() const { return planes_.front().elements(); }
  const UpdateCounts& counts() const { return counts_; }
  /// From a snapshot, together with the planes, before the kept pushes are taken again.
  void restore(int plane, PartValues values) {
    planes_[static_cast<std::size_t>(plane)] = std::move(values);
  }
  void restore(const UpdateCounts& counts) { counts_ = counts; }

 private:
  /// The oldest push that is kept of each member, added up in their order.
  struct Round {
    Kept sum;
    std::vector<int> members;
  };
  Round take_round();
  std::shared_ptr<float> copy_of(const void* values);
  void sweep(const float* gradient, double rate, double factor);

  const UpdateRule& rule_;
  const std::int64_t begin_;
  std::shared_ptr<BlockPool> pool_;
  Room::Share share_;
  std::vector<PartValues> planes_;
  std::vector<std::deque<Kept>> kept_;  ///< by member, of the rounds to come
  UpdateCounts counts_;
};

}  // namespace hetu::ps::server
