// One part of a table: its values, the optimizer's states, and the effect of pushes on both. Read
// by store.h.
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

/// Initial planes of a part, collected until all have arrived.
struct FirstPlanes {
  int expected = 1;
  std::int64_t updates = 0;  ///< updates applied before, for bias correction
  std::map<int, PartValues> planes;

  bool is_whole() const { return static_cast<int>(planes.size()) == expected; }
};

/// The values of a part. They depend only on the pushes, in the order in which take() gets them.
class PartState {
 public:
  /// Creates the part. `rule` must outlive it. `begin` is the part's first element within the
  /// table. Planes that `first` lacks become zeros.
  PartState(const UpdateRule& rule, std::int64_t begin, FirstPlanes first, int members,
            std::shared_ptr<BlockPool> pool);

  /// Takes the next push of a member: 4 bytes per element, of any alignment. Applies it immediately
  /// or keeps it for its round. `rate` is unused without an optimizer.
  void take(int member, double rate, const std::byte* values);
  /// Applies the rounds up to `slowest`, the smallest clock of the members that are waited for.
  /// Calls `heard` for each push of an applied round.
  void apply_rounds(std::int64_t slowest,
                    const std::function<void(int member, std::int64_t round)>& heard);
  /// A push that waits for its round.
  struct Kept {
    double rate = 0;
    std::shared_ptr<float> values;
  };
  /// Returns the pushes of a member that wait for their round. A caller that shares ownership of
  /// their values sees them unchanged.
  const std::deque<Kept>& kept(int member) const { return kept_[static_cast<std::size_t>(member)]; }

  /// Returns the bytes that a part takes besides the values of its planes.
  static std::int64_t overhead(int members) { return 1024 * static_cast<std::int64_t>(members); }

  /// Returns the current values (plane 0) or an optimizer state.
  Payload lend(int plane) { return planes_[static_cast<std::size_t>(plane)].lend(); }
  int planes() const { return static_cast<int>(planes_.size()); }
  std::int64_t elements() const { return planes_.front().elements(); }
  const UpdateCounts& counts() const { return counts_; }
  /// Restores a plane from a snapshot, before the kept pushes are taken again.
  void restore(int plane, PartValues values) {
    planes_[static_cast<std::size_t>(plane)] = std::move(values);
  }
  void restore(const UpdateCounts& counts) { counts_ = counts; }

 private:
  /// The oldest kept push of each member, summed by add_in_pairs().
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
  MemoryBudget::Share share_;
  std::vector<PartValues> planes_;
  std::vector<std::deque<Kept>> kept_;  ///< by member: pushes of incomplete rounds
  UpdateCounts counts_;
};

}  // namespace hetu::ps::server
