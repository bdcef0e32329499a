// A worker's cache of rows of a sparse table: what it looks up again and again it keeps, and what
// it changes it sends now and then. Read by whoever trains embeddings. Source: Miao et al. 2021,
// "HET: Scaling out Huge Embedding Model Training via Cache-enabled Distributed Framework",
// sections 3 and 4.
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

/// Which row makes room for a new one.
enum class CachePolicy : std::uint8_t {
  Lru,     ///< that whose last lookup is oldest
  Lfu,     ///< that with the fewest lookups since it came; of several, the oldest by last lookup
  LfuOpt,  ///< as Lfu, but counts end at 10, and a row that has got there stays for good
};

/// "lru", "lfu", "lfuopt".
const char* cache_policy_name(CachePolicy policy);
/// The inverse; "LRU" and the like are taken, too. Throws InvalidArgument, naming the known ones.
CachePolicy parse_cache_policy(std::string_view name);

struct CacheOptions {
  CachePolicy policy = CachePolicy::Lru;
  std::int64_t capacity = 0;  ///< rows of each table; 0: nothing is kept
  /// A row that is looked up is fetched anew once it lacks more than so many updates of others, and
  /// with a server's optimizer of this worker, too.
  std::int64_t pull_bound = 0;
  /// A row's changes are sent once they are more than so many updates, when the row is sent anew,
  /// and when it goes. 0 for tables of rounds.
  std::int64_t push_bound = 0;
};

/// What may be told of caches in a training job.
Fields fields(CacheOptions& options);

struct CacheCounters {
  std::int64_t lookups = 0;      ///< rows, each once per batch
  std::int64_t misses = 0;       ///< of them: not in the cache
  std::int64_t stale = 0;        ///< of them: in it, and sent anew
  std::int64_t rows_pulled = 0;  ///< vectors that servers sent, for prefetches too
  std::int64_t rows_pushed = 0;
  std::int64_t evictions = 0;
  std::int64_t bytes = 0;           ///< of rows, both ways: ids, versions, counts, vectors
  std::int64_t bytes_uncached = 0;  ///< the same without a cache, for the same calls

  std::int64_t bytes_saved() const { return bytes_uncached - bytes; }
  /// Each of the counts with its name.
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

/// Which row goes next. A row's level is 0 for LRU, else the number of its lookups.
class EvictionOrder {
 public:
  static constexpr int kLevels = 10;  ///< of LfuOpt; who is on the last one stays

  struct Place {
    std::int64_t level = 0;
    std::list<std::int64_t>::iterator at;  ///< of no meaning for a row that stays for good
  };
  explicit EvictionOrder(CachePolicy policy) : policy_(policy) {}

  Place add(std::int64_t id);
  /// A lookup of a row.
  void touch(Place& place);
  void remove(const Place& place);
  /// Nothing if all rows stay for good.
  std::optional<std::int64_t> next() const;

 private:
  bool stays(std::int64_t level) const {
    return policy_ == CachePolicy::LfuOpt && level >= kLevels;
  }
  CachePolicy policy_;
  std::map<std::int64_t, std::list<std::int64_t>> levels_;  ///< each by last lookup
};

/// One table of one worker. With bounds of 0 every lookup gives, bit for bit, what pull_rows gives,
/// and the servers hold what push_rows makes of the same updates. One thread calls it, and nothing
/// else of this worker pulls the table or pushes to it.
class RowCache {
 public:
  /// `client` must outlive it; `table` is the number that open_rows gave. Throws InvalidArgument
  /// for options that are out of range.
  RowCache(ParameterClient& client, int table, const SparseTable& about,
           const CacheOptions& options);
  /// Sends what has not been sent, unless an exception passes.
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  /// into[i] = row ids[i], of a batch; ids may repeat. `least` as for pulls. Blocks. Throws what
  /// wait() throws.
  void lookup(const std::int64_t* ids, std::int64_t count, float* into,
              std::int64_t least = kAnyClock);
  /// Asks for those rows of the next batch that are not here or too old, and comes back at once.
  /// The next lookup waits for them, and asks again for what has changed since.
  void prefetch(const std::int64_t* ids, std::int64_t count, std::int64_t least = kAnyClock);
  /// Waits for what prefetch() has asked for, which stays for the next lookup: the table may then
  /// be pulled by others of this worker.
  void arrive();
  /// Changes of rows, which are added to what is here, too; or, with a server's optimizer, their
  /// gradients and the rate. This member's clock rises by one. Gradients that are sent later go
  /// with the newest rate.
  void update(Rows rows, double rate = 0);
  /// Sends what has not been sent; the clock stays.
  void flush();

  const CacheCounters& counters() const { return counters_; }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  bool has(std::int64_t id) const { return rows_.count(id) > 0; }

 private:
  struct Row {
    std::int64_t version = -1;   ///< updates that `data` has, this worker's pushes included
    std::uint32_t updates = 0;   ///< that `pending` stands for
    std::vector<float> data;     ///< the row as this worker sees it
    std::vector<float> pending;  ///< changes that no server has
    EvictionOrder::Place place;
  };
  /// Rows that are asked for, each once, and what is known of them.
  struct Batch {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> had;  ///< versions before
    bool is_plain = false;          ///< asked without versions: nothing of it is here or is kept
    std::vector<std::int64_t> versions;
    std::vector<float> values;
    std::unordered_map<std::int64_t, std::size_t> places;
  };

  Batch batch_of(const std::int64_t* ids, std::int64_t count) const;
  void ask(Batch& batch, std::int64_t least);
  void count_answer(const Batch& batch);
  void take_prefetched(Batch& batch);
  void refresh(Row& row, const Batch& batch, std::size_t place, Rows& out);
  void keep(const Batch& batch, std::size_t place, Rows& out);
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
  std::optional<Batch> prefetched_;           ///< for the next lookup
  bool is_under_way_ = false;                 ///< it has not been waited for
  std::unordered_set<std::int64_t> changed_;  ///< pushed since the prefetch was asked for
  double rate_ = 0;
  CacheCounters counters_;
};

}  // namespace hetu::ps
