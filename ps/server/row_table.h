// The rows of a sparse table on one server. A row has values, optimizer states and a version; its
// block is created when one of its rows is first used. Read by store.h.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/memory_budget.h"
#include "ps/server/messages.h"
#include "ps/server/rows.h"
#include "ps/server/rows_view.h"
#include "ps/server/update_rule.h"

namespace hetu::ps::server {

/// The rows of a table. They depend only on the messages, in the order in which they are taken. An
/// update changes only the rows that it names, and their states. Adam's bias correction counts the
/// updates of the whole table, so that results don't depend on the number of servers.
class RowTable {
 public:
  /// The parameters of a table on one server.
  struct About {
    std::string name;
    RowSplit split;
    int server = 0;
    int width = 1;
    RowsInit first;
  };
  /// Creates the table without any rows in memory. `rule` must outlive it. Rows and kept updates
  /// take their memory from `budget`.
  RowTable(const UpdateRule& rule, About about, int members, std::shared_ptr<MemoryBudget> budget);

  int width() const { return about_.width; }
  std::int64_t rows() const { return about_.split.rows_of(about_.server); }
  int planes() const { return planes_; }
  /// Returns true if the ids ascend and lie within this server's rows.
  bool fits(const RowsView& rows) const;

  /// Returns the bytes that a table takes before it has rows.
  static std::int64_t overhead(const UpdateRule& rule, const About& about, int members);
  /// Returns the bytes by which take() of such a piece, or a read of `count` rows, would increase
  /// the memory in use.
  std::int64_t bytes_of_update(const RowsView& rows) const;
  std::int64_t bytes_of_read(const std::byte* ids, std::int64_t count) const;
  /// Returns an upper bound of both in constant time, for `count` rows in a message of `message`
  /// bytes.
  std::int64_t most_bytes(std::int64_t count, std::int64_t message) const {
    const std::int64_t block = block_rows_ * stride_ * static_cast<std::int64_t>(sizeof(float));
    return count * (block + Blocks::kShelfBytes) + 2 * message;
  }

  /// Takes a piece of a member's update: applies it, or keeps it for its round. Throws bad_alloc,
  /// in which case nothing has changed.
  void take(int member, const RowsView& rows, double rate);
  /// Marks the member's update as complete.
  void complete(int member);
  /// Applies complete rounds, as PartState::apply_rounds does.
  void apply_rounds(std::int64_t slowest,
                    const std::function<void(int member, std::int64_t round)>& heard);
  std::size_t kept(int member) const { return kept_[static_cast<std::size_t>(member)].size(); }
  /// Replaces values (plane 0) or an optimizer state. `updates` is the number of updates that the
  /// table has received.
  void set(const RowsView& rows, int plane, std::int64_t updates);

  /// Returns one plane of `count` rows, given and ordered by their local ids.
  Payload read(const std::byte* ids, std::int64_t count, int plane);
  /// Compares `count` rows with the versions that the caller has of them (negative: none). Returns
  /// the rows that have had more than `bound` updates since. Each entry holds the index (uint32),
  /// the version (int64) and the values.
  Payload read_newer(const std::byte* ids, const std::byte* versions, std::int64_t count,
                     std::int64_t bound);

  /// Returns the memory of the rows that exist.
  std::int64_t bytes() const {
    std::int64_t floats = 0;
    blocks_.for_each([&](std::int64_t number, const Block&) { floats += floats_of(number); });
    return floats * static_cast<std::int64_t>(sizeof(float));
  }
  const UpdateCounts& counts() const { return counts_; }

  /// Returns, for a snapshot, the blocks that messages have changed, with their numbers. A holder
  /// of a block never sees it change. Rows of other blocks have their initial values.
  std::vector<std::pair<std::int64_t, Payload>> lend_blocks();
  /// A piece of a kept update, with counts, in the form that take() accepts.
  struct KeptPiece {
    int member = 0;
    double rate = 0;
    bool last = false;  ///< complete() follows
    Payload rows;
  };
  std::vector<KeptPiece> kept_pieces() const;
  /// Restores a block from a snapshot. Returns false if no such block of that length exists.
  bool restore_block(std::int64_t block, const Payload& records);
  /// Restores a kept piece. Call it in the order of kept_pieces(). Returns false if it doesn't fit.
  bool restore_kept(const KeptPiece& piece);
  void restore(const UpdateCounts& counts) { counts_ = counts; }

 private:
  // An update of rows that waits for its round.
  struct Kept {
    double rate = 0;
    Rows rows;
  };
  /// Rows stored one after the other.
  struct Block {
    std::shared_ptr<float[]> records = nullptr;
    bool is_changed = false;
    bool is_lent = false;
  };
  /// Blocks by number. A sparsely used table has few blocks, so they live on shelves of 256. A
  /// shelf is created when one of its blocks is first used.
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
    /// Calls `what` for each block that has records, in ascending order of numbers.
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

  // Returns the block of a row, which is created if it doesn't exist.
  Block& block_of(std::int64_t row);
  // Returns a row's record for reading.
  const float* look_at(std::int64_t row);
  // Returns a row's record for writing, after copying a block that is lent.
  float* change(std::int64_t row);
  std::int64_t floats_of(std::int64_t block) const;
  std::shared_ptr<float[]> make_records(std::int64_t block) const;
  // Applies an update to its rows and increases their versions.
  void apply(const RowsView& rows, double rate, double factor, std::int64_t update);
  void add(float* const* records, const RowsView& rows, std::int64_t first, std::int64_t count);
  void sweep(float* const* records, const SweepCall& constants, std::int64_t count);

  const UpdateRule& rule_;
  const About about_;
  MemoryBudget::Share share_;
  const int planes_;
  const std::int64_t stride_;      ///< floats of a record: planes x width, plus the version
  const std::int64_t block_rows_;  ///< a power of two
  const int block_shift_;          ///< log2 of block_rows_
  const Sweep sweep_;              ///< nullptr: updates are added
  Blocks blocks_;
  std::vector<std::deque<Kept>> kept_;  ///< by member: complete updates of later rounds
  std::vector<Kept> open_;              ///< by member: the incomplete update
  std::vector<float> scratch_;          ///< planes of a batch of rows, one after the other
  std::vector<float*> records_;         ///< records of the rows of the current update
  UpdateCounts counts_;
};

}  // namespace hetu::ps::server
