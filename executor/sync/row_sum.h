// One sum over a group of copies of a gradient that goes by rows: each member sends the rows that
// it has, so that messages cost by the rows touched and not by those of the table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/stage/stages.h"
#include "net/transport/collective.h"

namespace hetu {

/// Of a bucket with `rows`, in host memory. Bits are those of Reducer's sum of the whole tensor:
/// rows are added in the order of the group, on every member alike.
class RowSum {
 public:
  /// Packs this worker's rows and starts to send them to the others; never blocks. The bucket and
  /// the transport must outlive it.
  RowSum(comm::Transport& transport, comm::Group group, const Bucket& bucket, comm::Tag tag);

  /// Sleeps until the rows of all members are here; then the bucket holds the sum, and its touched
  /// rows are those of any member. Throws as Transport::wait, and Comm where a member sends what is
  /// no rows of this table.
  void finish(comm::What what);
  /// Whether the others have what this one sent; until then it must live.
  bool is_sent() const;

 private:
  // Some rows of the table: their numbers, ascending, and their values one after the other.
  struct Packed {
    std::int64_t count = 0;
    std::vector<std::byte> bytes;  // count numbers of 4 bytes, then count x width floats
    RowsOf rows() const;
  };
  void pack();
  std::size_t bytes_of(std::int64_t count) const;

  comm::Transport& transport_;
  comm::Group group_;
  Bucket bucket_;
  comm::Tag tag_;
  std::vector<Packed> packed_;                          // by member
  std::size_t own_ = 0;                                 // this worker's place in the group
  std::vector<std::unique_ptr<comm::Request>> counts_;  // by member; null: this worker
  std::vector<std::unique_ptr<comm::Request>> sends_;
};

}  // namespace hetu
