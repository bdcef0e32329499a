// What a parameter server keeps on disk: every change of its store before anybody hears of it, and
// from time to time the whole store in place of the changes before it. Read by serve.h and tests.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/server/record_file.h"
#include "ps/server/store.h"

namespace hetu::ps::server {

struct LogOptions {
  std::string folder;  ///< that is there; files of other servers may stand in it, too
  std::string job;     ///< whose log it is; no other job's is read
  int server = 0;      ///< of servers
  int servers = 1;
  /// Whether commit() waits for the disk. Without, a log outlives its process, killed in whatever
  /// way, but a loss of power may take the last seconds with it.
  bool sync = false;
  /// A snapshot is written when the changes have grown to so many times the bytes of the last one,
  /// and to the bytes below.
  double snapshot_after = 2;
  std::int64_t least_bytes = std::int64_t{16} << 20;
};

/// The log of one server: "server-K.log.G", changes after the snapshot "server-K.snapshot.G" (or
/// from the beginning, G = 0), and then those of G + 1, while the next snapshot is being written.
/// What a snapshot replaces becomes a spare, "server-K.spare-log" or "-snapshot", which the next
/// file of its kind is written over (but with sync). At most about 2 + 2 snapshot_after times the
/// bytes of the tables.
///
/// recover() first, to its end. Then append() and commit(), in this order, before an answer leaves.
/// Everything throws Io, in one line, which names the file and, where something is wrong with what
/// is in it, the byte: what cannot be written or read, what is damaged, the log of another job, of
/// another server, of another number of servers.
class Log {
 public:
  explicit Log(LogOptions options);

  /// Brings what is kept into a store that has seen nothing, about so many bytes (> 0) at a call;
  /// true once all is there. A record that a kill has cut off is removed: nobody has heard of it.
  bool recover(Store& store, std::int64_t bytes);
  /// Changes and pieces that were recovered.
  std::int64_t recovered() const { return recovered_; }

  /// Keeps a change; large values go to the system at once, small ones at commit().
  void append(const Change& change);
  /// Nothing that was appended is lost from now on if this process ends.
  void commit();
  /// Begins a snapshot if one is due, and writes about so many bytes of it: a round's worth, so
  /// that nobody waits for all. The store goes on changing meanwhile; what it changes is copied
  /// first.
  void save(Store& store, std::int64_t bytes);
  /// Whether a snapshot is being written.
  bool is_saving() const { return next_ != nullptr; }

 private:
  struct Source {
    std::string path;
    int generation = 0;
    bool is_snapshot = false;
  };
  std::string path(const char* kind, int generation) const;
  std::string unfinished() const;
  void find_sources();
  std::string spare(const char* kind) const;
  std::unique_ptr<RecordWriter> begin(const std::string& path, const char* kind, int generation);
  void check_beginning(RecordReader& from, const Bytes& record, const Source& source) const;
  void take(Store& store, const Source& source, const Bytes& record);
  void end_source(const Source& source, RecordReader::Found end);
  void begin_snapshot(Store& store);
  void finish_snapshot();
  void sync_folder() const;

  const LogOptions options_;
  std::deque<Source> sources_;  ///< that are still to be read
  std::unique_ptr<RecordReader> reader_;
  bool begun_ = false;  ///< the first record of reader_ was right
  bool ended_ = false;  ///< the end of a snapshot was read
  std::int64_t recovered_ = 0;
  int generation_ = 0;
  std::unique_ptr<RecordWriter> changes_;
  std::int64_t synced_ = 0;
  std::int64_t before_ = 0;      ///< bytes of changes in older files, since the last snapshot
  std::int64_t last_bytes_ = 0;  ///< of the last snapshot
  std::unique_ptr<RecordWriter> next_;  ///< the snapshot that is being written
  std::deque<Piece> pieces_;            ///< what is still to be written of it
};

}  // namespace hetu::ps::server
