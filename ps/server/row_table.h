// The rows of a sparse table that one server has: values, what an optimizer keeps and a version
// beside each, made when they are first asked for. Read by store.h.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/messages.h"
#include "ps/server/room.h"
#include "ps/server/rows.h"
#include "ps/server/rows_view.h"
#include "ps/server/update_rule.h"

namespace hetu::ps::server {

/// A function of the messages in the order in which they are taken, of nothing else. An update
/// changes the rows that it names and their states alone; Adam's bias correction counts the updates
/// of the whole table, so that it does not depend on the number of servers.
class RowTable {
 public:
  struct About {
    std::string name;
    RowSplit split;
    int server = 0;
    int width = 1;
    RowsInit first;
  };
  /// `rule` must outlive it. `room`: of which rows and what is kept take their share.
  RowTable(const UpdateRule& rule, About about, int members, std::shared_ptr<Room> room);

  int width() const { return about_.width; }
  std::int64_t rows() const { return about_.split.rows_of(about_.server); }
  int planes() const { return planes_; }
  /// Whether the ids ascend within this server's rows.
  bool fits(const RowsView& rows) const;

  /// What a table takes before it has rows.
  static std::int64_t overhead(const UpdateRule& rule, const About& about, int members);
  /// Bytes that take() of such a piece, or a read of `count` rows, would add to the room's.
  std::int64_t bytes_of_update(const RowsView& rows) const;
  std::int64_t bytes_of_read(const std::byte* ids, std::int64_t count) const;
  /// A bound of both that is had at once, for a message of so many bytes.
  std::int64_t most_bytes(std::int64_t count, std::int64_t message) const {
    const std::int64_t block = block_rows_ * stride_ * static_cast<std::int64_t>(sizeof(float));
    return count * (block + Blocks::kShelfBytes) + 2 * message;
  }

  /// A piece of a member's update: applied at once, or kept for its round. Throws bad_alloc, and
  /// then nothing has changed.
  void take(int member, const RowsView& rows, double rate);
  /// The member's update is whole.
  void complete(int member);
  /// As PartState's.
  void apply_rounds(std::int64_t slowest,
                    const std::function<void(int member, std::int64_t round)>& heard);
  std::size_t kept(int member) const { return kept_[static_cast<std::size_t>(member)].size(); }
  /// Replaces values (plane 0) or a state; `updates`: those that the table has seen.
  void set(const RowsView& rows, int plane, std::int64_t updates);

  /// One plane of `count` rows, in the order of their local ids.
  Payload read(const std::byte* ids, std::int64_t count, int plane);
  /// Of `count` rows with the versions that somebody has of them (below 0: none): those that have
  /// seen more than `bound` updates since, each as place (uint32), version (int64) and values.
  Payload read_newer(const std::byte* ids, const std::byte* versions, std::int64_t count,
                     std::int64_t bound);

  /// Memory of the rows that have been touched.
  std::int64_t bytes() const {
    std::int64_t floats = 0;
    blocks_.for_each([&](std::int64_t number, const Block&) { floats += floats_of(number); });
    return floats * static_cast<std::int64_t>(sizeof(float));
  }
  const UpdateCounts& counts() const { return counts_; }

  /// For snapshots: the blocks of rows that messages have changed, by number. They are lent:
  /// whoever has one sees no change. Rows of other blocks are as they began.
  std::vector<std::pair<std::int64_t, Payload>> lend_blocks();
  /// A piece of an update that is kept, as take() takes it again, with counts.
  struct KeptPiece {
    int member = 0;
    double rate = 0;
    bool last = false;  ///< complete() is to follow
    Payload rows;
  };
  std::vector<KeptPiece> kept_pieces() const;
  /// From a snapshot; false: there is no such block of that length.
  bool restore_block(std::int64_t block, const Payload& records);
  /// Likewise, in the order of kept_pieces().
  bool restore_kept(const KeptPiece& piece);
  void restore(const UpdateCounts& counts) { counts_ = counts; }

 private:
  struct Kept {
    double rate = 0;
    Rows rows;
  };
  /// Rows side by side.
  struct Block {
    std::shared_ptr<float[]> records = nullptr;
    bool is_changed = false;
    bool is_lent = false;
  };
  /// By number. Of a table that is hardly touched hardly any are there, so they stand on shelves,
  /// each made when the first of its blocks is asked for.
  class Blocks {
   public:
    static constexpr std::int64_t kShelf = 256;
    static constexpr auto kShelfBytes = kShelf * static_cast<std::int64_t>(sizeof(Block));
    static std::int64_t shelves_of(std::int64_t count) { return (count + kShelf - 1) / kShelf; }

    explicit Blocks(std::int64_t count)
        : count_(count), shelves_(static_cast<std::size_t>(shelves_of(count))) {}
    bool has_shelf(std::int64_t shelf) const {
      return shelves_[static_cast<std::size_t>(shelf)] != nullptr;
    }
    std::int64_t size() const { return count_; }
    bool has(std::int64_t number) const {
      const auto& shelf = shelves_[static_cast<std::size_t>(number / kShelf)];
      return shelf && shelf[static_cast<std::size_t>(number % kShelf)].records;
    }
    Block& at(std::int64_t number) {
      auto& shelf = shelves_[static_cast<std::size_t>(number / kShelf)];
      if (!shelf) shelf = std::make_unique<Block[]>(kShelf);
      return shelf[static_cast<std::size_t>(number % kShelf)];
    }
    /// Those that have records, in the order of their numbers.
    template <class Do>
    void for_each(const Do& what) const {
      for (std::size_t s = 0; s < shelves_.size(); ++s) {
        for (std::int64_t i = 0; shelves_[s] && i < kShelf; ++i) {
          Block& block = shelves_[s][static_cast<std::size_t>(i)];
          if (block.records) what(static_cast<std::int64_t>(s) * kShelf + i, block);
        }
      }
    }

   private:
    std::int64_t count_;
    std::vector<std::unique_ptr<Block[]>> shelves_;
  };

  Block& block_of(std::int64_t row);
  const float* look_at(std::int64_t row);
  float* change(std::int64_t row);
  std::int64_t floats_of(std::int64_t block) const;
  std::shared_ptr<float[]> make_records(std::int64_t block) const;
  void apply(const RowsView& rows, double rate, double factor, std::int64_t update);
  void add(float* const* records, const RowsView& rows, std::int64_t first, std::int64_t count);
  void sweep(float* const* records, const SweepCall& constants, std::int64_t count);

  const UpdateRule& rule_;
  const About about_;
  Room::Share share_;
  const int planes_;
  const std::int64_t stride_;      ///< floats of a record: planes x width, and a version
  const std::int64_t block_rows_;  ///< a power of two, of which
  const int block_shift_;          ///< this is the logarithm
  const Sweep sweep_;              ///< nullptr: updates are added
  Blocks blocks_;
  std::vector<std::deque<Kept>> kept_;  ///< by member: whole updates of the rounds to come
  std::vector<Kept> open_;              ///< by member: the one that is not whole
  std::vector<float> scratch_;          ///< tensors of a batch of rows, side by side
  std::vector<float*> records_;         ///< of the rows of the update that is applied
  UpdateCounts counts_;
};

}  // namespace hetu::ps::server
