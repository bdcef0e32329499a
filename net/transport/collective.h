// Sums and exchanges over a group of workers, built on the point-to-point messages of any
// transport. Each element is added by one owner, in the order of the members. Every member
// therefore gets the same bits, whichever message arrives first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "net/transport/transport.h"

namespace hetu::comm {

/// Worker numbers of the job in ascending order, each once. A group is always passed explicitly; no
/// function assumes the whole job.
using Group = std::vector<int>;

/// Throws InvalidArgument unless `group` is in ascending order and contains this worker.
void check_group(const Transport& transport, const Group& group);

/// Returns the group of all workers of the job.
Group everyone(const Transport& transport);

/// An all-reduce or reduce-scatter in progress, started by a Reducer.
class Sum;

/// The terms of a sum to which a member may contribute several terms or none, and the order in
/// which they are added. All members must pass the same, except `data`.
struct Terms {
  std::vector<int> members;       ///< by term: its member, as an index in the group
  std::vector<const void*> data;  ///< by term: this member's data; null for other members
  /// Postfix form: a number from 0 on puts a term on a stack, and a negative one replaces the two
  /// sums on top by their sum.
  std::vector<int> order;
};

/// Returns terms of which each member contributes one, added one by one in the order of `group`;
/// `data` is the term of `worker`.
Terms term_each(const Group& group, int worker, const void* data);

/// A range of `count` elements that starts at element `begin`.
struct Slice {
  std::int64_t begin = 0, count = 0;
};

/// Runs the all-reduces of one worker on a thread of its own, so that they overlap with compute.
/// Sums advance as their pieces arrive, so members may start them in different orders. Every member
/// must start each (group, tag) exactly once.
class Reducer {
 public:
  explicit Reducer(Transport& transport);
  /// Abandons the sums that are still in progress.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Starts data[0..count) = sum of `data` over the group's members, and never blocks. Terms are
  /// added in the order in which `group` lists the members; all members must pass the same list.
  ///
  /// The data must stay in place until wait() returns or the last copy of the returned pointer is
  /// destroyed. Destroying it abandons the sum, and nothing touches the data afterwards. Each
  /// member moves 2 (g - 1) / g of the bytes in a group of g. A group of one is complete at once.
  ///
  /// With `wire` = BFloat16 (float32 data only), pieces and sums are rounded to bfloat16 for the
  /// transfer, so half the bytes move. Additions are in float32, and all members end with the same
  /// rounded sum.
  ///
  /// Throws InvalidArgument if the group names a worker twice or lacks this worker. Throws
  /// Unsupported if `dtype` is not float32 or float64, or if `wire` is neither Float32 nor, for
  /// float32 data, BFloat16.
  std::shared_ptr<Sum> start_sum(const Group& group, DType dtype, void* data, std::int64_t count,
                                 Tag tag, DType wire = DType::Float32);

  /// As start_sum without rounding, but data[0..count) becomes the sum of `terms`, of which each
  /// has `count` elements. With `slices`, as start_scatter. Each member sends its terms, so that a
  /// member with several terms moves more bytes.
  std::shared_ptr<Sum> start_terms(const Group& group, DType dtype, void* data,
                                   const std::vector<Slice>& slices, const Terms& terms, Tag tag,
                                   bool scatters);

  /// Starts a reduce-scatter. It is like start_sum, but each member receives only the sums of its
  /// own slice, with the same bits. `slices` has one slice per member, in the order of `group`.
  /// Slices must not overlap, and elements outside all slices are not sent. A member's data outside
  /// its own slice stays unchanged. Each member moves (g - 1) / g of the bytes in a group of g.
  std::shared_ptr<Sum> start_scatter(const Group& group, DType dtype, void* data,
                                     const std::vector<Slice>& slices, Tag tag);

  /// Sleeps until `data` holds the sum. Returns now_ns() of the moment of completion. Throws
  /// Timeout and Comm as Transport::wait does, and names the peer whose message is missing.
  std::int64_t wait(Sum& sum, WaitPurpose what);

  /// Makes every wait() for an unfinished sum, present and future, throw Comm. Call it when another
  /// thread is about to leave the job while a thread waits here.
  void give_up();
  /// Marks a worker as dead. Every sum with that worker, present and future, ends with Comm and
  /// `why`. This includes members that have already received all they need, because others may not
  /// have. Call it on every member.
  void lose(int worker, const std::string& why);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the sums that it has started
};

/// Returns slices for each of `members` members whose sizes differ by at most one element.
std::vector<Slice> even_slices(std::int64_t count, std::size_t members);

/// Tag of an exchange's messages, and its name in errors. Use it as a function argument only,
/// because a WaitPurpose refers to its argument.
struct Exchange {
  Tag tag;
  WaitPurpose what;
};

/// Gathers bytes from all members of the group on all members. Member i of the group (by its index
/// in `group`) contributes `bytes_of[i]` bytes from `mine`. `all` receives the contributions one
/// after another; its size is the sum of `bytes_of`. The first member collects the bytes and sends
/// the whole to the others. Blocks.
void all_gather_bytes(Transport& transport, const Group& group,
                      const std::vector<std::size_t>& bytes_of, const void* mine, void* all,
                      const Exchange& exchange);

/// Memory that has the same layout on all members of a group. The bytes of worker `owner` are
/// copied to the other members.
struct OwnedPart {
  int owner = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Copies each part from its owner to all other members of the group. All members must pass the
/// same number of parts, with the same owners and lengths. Each owner sends straight to each other
/// member, and all parts are in transit at once. Blocks.
void gather_from_owners(Transport& transport, const Group& group,
                        const std::vector<OwnedPart>& parts, const Exchange& exchange);

/// Bytes contributed by the members of a group, one contribution after another.
struct Gathered {
  std::vector<std::byte> all;
  std::vector<std::size_t> bytes_of;  ///< bytes per contribution, by index in the group
};

/// Gathers byte strings of any length from every worker of the job, or of a group, on all of them.
/// The contributions are in the order of the group. Blocks.
Gathered gather_bytes(Transport& transport, const void* mine, std::size_t bytes,
                      const Exchange& exchange);
Gathered gather_bytes(Transport& transport, const Group& group, const void* mine, std::size_t bytes,
                      const Exchange& exchange);

/// Replaces values[i] by the sum of values[i] over the group, with the same bits on every member.
/// Terms are added in the order of `order`, a permutation of the group. Pass the group itself for
/// ascending order. Blocks. Meant for scalars: losses, norms, flags.
void sum_f64(Transport& transport, const Group& order, double* values, std::size_t count,
             const Exchange& exchange);

/// Returns once every member has called it. Blocks.
void barrier(Transport& transport, const Group& group, const Exchange& exchange);

}  // namespace hetu::comm
