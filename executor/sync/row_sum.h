// The sum of a gradient that is stored by rows, over a group of copies. Each member sends only the
// rows that it has, so the cost depends on the touched rows, not on the size of the table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/stage/stages.h"
#include "net/transport/collective.h"

namespace hetu {

/// The running sum of a bucket with `rows`, in host memory. It has the bits of Reducer's sum of the
/// whole tensor: every member adds the rows in the order of the group.
class RowSum {
 public:
  /// Packs this worker's rows and starts to send them to the other members; never blocks. The
  /// bucket and the transport must outlive the object.
  RowSum(comm::Transport& transport, comm::Group group, const Bucket& bucket, comm::Tag tag);

  /// Waits for the rows of all members. Then the bucket holds the sum, and its touched rows are
  /// those of any member. Throws the errors of Transport::wait, and Comm if a member announces
  /// more rows than the table has.
  void finish(comm::WaitPurpose what);
  /// Returns true if all sends of this worker's rows are done. Until then the object must exist.
  bool is_sent() const;

 private:
  // Rows of the table: their numbers, ascending, followed by their values.
  struct Packed {
    std::int64_t count = 0;
    std::vector<std::byte> bytes;  // `count` row numbers of 4 bytes, then `count` x `width` floats
    RowsOf rows() const;
  };
  void pack();
  std::size_t bytes_of(std::int64_t count) const;

  comm::Transport& transport_;
  comm::Group group_;
  Bucket bucket_;
  comm::Tag tag_;
  std::vector<Packed> packed_;                          // by member
  std::size_t own_ = 0;                                 // index of this worker in the group
  std::vector<std::unique_ptr<comm::Request>> counts_;  // by member; null for this worker
  std::vector<std::unique_ptr<comm::Request>> sends_;
};

}  // namespace hetu
