// Sums and exchanges over a group of workers, on point-to-point messages of any transport. Every
// member gets the same bits, whoever arrives first: each element is added by one owner, in the
// order of the members.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "net/transport/transport.h"

namespace hetu::comm {

/// Global workers, ascending, each once. A list, never the world.
using Group = std::vector<int>;

/// Throws InvalidArgument unless `group` ascends and has this worker.
void check_group(const Transport& transport, const Group& group);

/// All workers of the job.
Group everyone(const Transport& transport);

/// An all-reduce or a reduce-scatter under way; made by a Reducer.
class Sum;

/// `count` elements, from the element `begin` on.
struct Slice {
  std::int64_t begin = 0, count = 0;
};

/// Runs the all-reduces of one worker beside its compute, on a thread of its own. Sums advance as
/// their pieces arrive, so members may start them in different orders; each (group, tag) must be
/// started once by every member.
class Reducer {
 public:
  explicit Reducer(Transport& transport);
  /// Sums still under way are given up.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Starts data[0..count) = sum over the group's members of their data, added in the order in
  /// which `group` lists them, the same list on every member; never blocks. The data must stay in
  /// place until wait returns or the last copy of the pointer goes, which gives the sum up: nothing
  /// touches the data afterwards. Moves 2 (g - 1) / g of the bytes per member. A group of one is
  /// done at once. `wire` BFloat16, of float32 data: what goes to another member is rounded, so
  /// half the bytes move; additions are in float32, and all members end with the same rounded sum.
  /// Throws InvalidArgument if the group names a worker twice or lacks this worker, Unsupported on
  /// a dtype other than float32 and float64, and on a wire other than float32 and, of float32,
  /// BFloat16.
  std::shared_ptr<Sum> start_sum(const Group& group, DType dtype, void* data, std::int64_t count,
                                 Tag tag, DType wire = DType::Float32);

  /// Starts a reduce-scatter: as start_sum, but each member gets only the sums of its own slice,
  /// with the same bits. `slices` has the slice of each member, in the order of `group`. No two
  /// slices overlap, and elements in no slice are not sent. What lies outside of the own slice
  /// stays as it was. Moves (g - 1) / g of the bytes per member.
  std::shared_ptr<Sum> start_scatter(const Group& group, DType dtype, void* data,
                                     const std::vector<Slice>& slices, Tag tag);

  /// Sleeps until the sum stands in `data`; returns now_ns() of that moment. Throws Timeout and
  /// Comm like Transport::wait, naming the peer that is missing.
  std::int64_t wait(Sum& sum, What what);

  /// Ends every wait, now and later, with Comm: another thread is about to go away while one waits.
  void give_up();
  /// A worker is dead: every sum with it, now and later, ends with Comm and `why`, also on members
  /// that have what they want of it, because others may lack it. To be told to every member.
  void lose(int worker, const std::string& why);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // of its sums, too
};

/// What an exchange is called: the tag of its messages, and its name in errors. A function argument
/// only.
struct Exchange {
  Tag tag;
  What what;
};

/// Every member gives `bytes_of[i]` bytes (i = its place in the group) and gets all, one after
/// another, in `all` (size: the sum). Gathered by the first member, which sends the whole to the
/// others. Blocks.
void all_gather_bytes(Transport& transport, const Group& group,
                      const std::vector<std::size_t>& bytes_of, const void* mine, void* all,
                      const Exchange& exchange);

/// Memory that all members of a group have alike. `owner` is the member whose bytes count.
struct OwnedPart {
  int owner = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Every member gets the bytes of each part's owner. All members call it with as many parts, of the
/// same owners and lengths. Straight from the owner to each other member, all parts at once.
/// Blocks.
void gather_from_owners(Transport& transport, const Group& group,
                        const std::vector<OwnedPart>& parts, const Exchange& exchange);

/// What the workers of a job gave, one after another.
struct Gathered {
  std::vector<std::byte> all;
  std::vector<std::size_t> bytes_of;  ///< by worker, or by place in the group
};

/// Every worker of the job, or of a group, gives as many bytes as it likes, and gets all, in the
/// order of the group. Blocks.
Gathered gather_bytes(Transport& transport, const void* mine, std::size_t bytes,
                      const Exchange& exchange);
Gathered gather_bytes(Transport& transport, const Group& group, const void* mine, std::size_t bytes,
                      const Exchange& exchange);

/// values[i] = sum over the group of values[i], added in the order of `order` (a permutation of the
/// group; the group itself for ascending order), same bits on every member. Blocks. For scalars:
/// losses, norms, flags.
void sum_f64(Transport& transport, const Group& order, double* values, std::size_t count,
             const Exchange& exchange);

/// Returns once every member has called it. Blocks.
void barrier(Transport& transport, const Group& group, const Exchange& exchange);

}  // namespace hetu::comm
