// A worker's cache of rows of a sparse table. It keeps rows that are looked up repeatedly, and
// collects changes of rows before it sends them. Read by code that trains embeddings.
// Source: Miao et al. 2021, "HET: Scaling out Huge Embedding Model Training via Cache-enabled
// Distributed Framework", sections 3 and 4.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/fields.h"
#include "ps/client/parameter_client.h"

namespace hetu::ps {

/// The rule that chooses the row to evict.
enum class CachePolicy : std::uint8_t {
  Lru,  ///< evicts the row with the oldest last lookup
  /// evicts the row with the fewest lookups since it was cached; on a tie the oldest last lookup
  Lfu,
  LfuOpt,  ///< as Lfu, but a row that reaches 10 lookups stays for good
};

/// Returns "lru", "lfu" or "lfuopt".
const char* cache_policy_name(CachePolicy policy);
/// Parses a name, in upper or lower case. Throws InvalidArgument, with the known names.
CachePolicy parse_cache_policy(std::string_view name);

/// Options of a cache.
struct CacheOptions {
  CachePolicy policy = CachePolicy::Lru;
  std::int64_t capacity = 0;  ///< rows of each table; 0: nothing is cached
  /// A lookup fetches a row again once the cached copy lacks more than this number of updates. With
  /// an optimizer on the servers all updates count, otherwise only those of other workers.
  std::int64_t pull_bound = 0;
  /// A row's changes are sent once they are more than this number of updates, when the row is
  /// fetched again, and when it is evicted. Must be 0 for tables with rounds.
  std::int64_t push_bound = 0;
};

/// Returns the options of caches that a training job accepts.
Fields fields(CacheOptions& options);

/// Counts of a cache since its creation.
struct CacheCounters {
  std::int64_t lookups = 0;      ///< rows looked up, each once per batch
  std::int64_t misses = 0;       ///< lookups of rows that were not in the cache
  std::int64_t stale = 0;        ///< lookups of cached rows that were fetched again
  std::int64_t rows_pulled = 0;  ///< vectors sent by servers, including prefetches
  std::int64_t rows_pushed = 0;
  std::int64_t evictions = 0;
  std::int64_t bytes = 0;           ///< both directions: ids, versions, counts, vectors
  std::int64_t bytes_uncached = 0;  ///< bytes that the same calls would need without a cache

  std::int64_t bytes_saved() const { return bytes_uncached - bytes; }
  /// Calls `visit` with each count and its name.
  template <class Visit>
  void each(const Visit& visit) const {
    visit("lookups", lookups);
    visit("misses", misses);
    visit("stale", stale);
    visit("rows_pulled", rows_pulled);
    visit("rows_pushed", rows_pushed);
    visit("evictions", evictions);
    visit("bytes", bytes);
    visit("bytes_uncached", bytes_uncached);
  }
};

/// The eviction order. A row's level is 0 for LRU; otherwise it is the number of its lookups.
class EvictionOrder {
 public:
  static constexpr int kLevels = 10;  ///< for LfuOpt: rows on the last level stay

  struct Position {
    std::int64_t level = 0;
    std::list<std::int64_t>::iterator at;  ///< invalid for a row that stays for good
  };
  explicit EvictionOrder(CachePolicy policy) : policy_(policy) {}

  /// Adds a row after its first lookup.
  Position add(std::int64_t id);
  /// Records a lookup of a row.
  void touch(Position& position);
  /// Removes a row that leaves the cache.
  void remove(const Position& position);
  /// Returns the row to evict next, or nullopt if all rows stay for good.
  std::optional<std::int64_t> next() const;

 private:
  bool stays(std::int64_t level) const {
    return policy_ == CachePolicy::LfuOpt && level >= kLevels;
  }
  CachePolicy policy_;
  /// by level, each ordered by last lookup
  std::map<std::int64_t, std::list<std::int64_t>> levels_;
};

/// The cache of one table in one worker. With bounds of 0 every lookup returns, bit for bit, the
/// result of pull_rows, and the servers hold the result of push_rows with the same updates. Use it
/// from one thread. Nothing else in this worker may pull the table or push to it.
class RowCache {
 public:
  /// Creates an empty cache. `client` must outlive it; `table` is the number that open_rows
  /// returned. Throws InvalidArgument for options out of range.
  RowCache(ParameterClient& client, int table, const SparseTable& about,
           const CacheOptions& options);
  /// Sends pending changes, unless an exception is in flight.
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  /// Copies the rows of a batch: into[i] = row ids[i]. Ids may repeat. `least` as in pull().
  /// Blocks. Throws what wait() throws.
  void lookup(const std::int64_t* ids, std::int64_t count, float* into,
              std::int64_t least = kAnyClock);
  /// Requests the rows of the next batch that are missing or too old, and returns immediately. The
  /// next lookup waits for them, and fetches again the rows that this worker has pushed since.
  void prefetch(const std::int64_t* ids, std::int64_t count, std::int64_t least = kAnyClock);
  /// Waits for the rows that prefetch() requested and keeps them for the next lookup. Other code of
  /// this worker may then pull the table.
  void arrive();
  /// Takes changes of rows and adds them to the cached copies, too. With an optimizer on the
  /// servers, takes gradients and the rate instead. Increases this member's clock by one. Gradients
  /// that are sent later use the newest rate.
  void update(Rows rows, double rate = 0);
  /// Sends pending changes; the clock stays.
  void flush();

  const CacheCounters& counters() const { return counters_; }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  bool has(std::int64_t id) const { return rows_.count(id) > 0; }

 private:
  // A cached row.
  struct Row {
    std::int64_t version = -1;   ///< updates that `data` contains, this worker's pushes included
    std::uint32_t updates = 0;   ///< updates that `pending` stands for
    std::vector<float> data;     ///< the row as this worker sees it
    std::vector<float> pending;  ///< changes that no server has
    EvictionOrder::Position position;
  };
  /// The distinct rows of a request, and their versions.
  struct Batch {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> had;  ///< versions before the request
    bool is_plain = false;          ///< asked without versions: nothing is cached
    std::vector<std::int64_t> versions;
    std::vector<float> values;
    std::unordered_map<std::int64_t, std::size_t> index_of;
  };

  // Returns the distinct rows of a request.
  Batch batch_of(const std::int64_t* ids, std::int64_t count) const;
  // Begins the pull of a batch.
  void ask(Batch& batch, std::int64_t least);
  // Adds an answer to the counters.
  void count_answer(const Batch& batch);
  // Merges the prefetched rows into a batch.
  void take_prefetched(Batch& batch);
  // Replaces a cached row by a newer one.
  void refresh(Row& row, const Batch& batch, std::size_t index, Rows& out);
  // Caches a row, and evicts another one if the cache is full.
  void keep(const Batch& batch, std::size_t index, Rows& out);
  // Moves a row's pending changes to `out`.
  void take_pending(std::int64_t id, Row& row, Rows& out);
  void send(Rows rows, bool last);
  bool adds() const { return !optimizes_; }

  ParameterClient& client_;
  const int table_;
  const std::size_t width_;
  const bool optimizes_;
  const CacheOptions options_;
  const int exceptions_;
  std::unordered_map<std::int64_t, Row> rows_;
  EvictionOrder order_;
  std::optional<Batch> prefetched_;           ///< rows for the next lookup
  bool is_under_way_ = false;                 ///< prefetched_ has not been waited for
  std::unordered_set<std::int64_t> changed_;  ///< rows pushed since the prefetch was requested
  double rate_ = 0;
  CacheCounters counters_;
};

}  // namespace hetu::ps
