// The log that a parameter server keeps on disk. It holds every change of the store before the
// change is answered. A snapshot of the whole store replaces older changes from time to time. Read
// by serve.h and tests.
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

/// Options of a server's log.
struct LogOptions {
  std::string folder;  ///< an existing folder; logs of other servers may be in it, too
  std::string job;     ///< id of the job that owns the log; a log of another job is refused
  int server = 0;      ///< number of this server, from 0
  int servers = 1;
  /// True if commit() waits for the disk. If false, the log survives any kill of the process, but a
  /// power loss may remove the last seconds.
  bool sync = false;
  /// A snapshot begins once the changes exceed both `snapshot_after` times the bytes of the last
  /// snapshot, and `least_bytes`.
  double snapshot_after = 2;
  std::int64_t least_bytes = std::int64_t{16} << 20;
};

/// The log of one server. The file "server-K.log.G" holds the changes after the snapshot
/// "server-K.snapshot.G" (from the beginning if G = 0). While the next snapshot is being written,
/// changes go to the log of generation G + 1.
///
/// Files that a snapshot replaces become spares: "server-K.spare-log" and
/// "server-K.spare-snapshot". The next file of the same kind overwrites the spare, except with
/// `sync`. All files together take at most about 2 + 2 snapshot_after times the bytes of the
/// tables.
///
/// Call recover() until it returns true. Then call append() and commit(), in this order, before an
/// answer leaves. All functions throw Io, with one line that names the file and, for damaged
/// content, the byte. Reasons are: a file can't be read or written, a file is damaged, or the log
/// belongs to another job, another server or another number of servers.
class Log {
 public:
  /// Finds the files of an earlier process in the folder. Without any, begins log 0.
  explicit Log(LogOptions options);

  /// Loads about `bytes` bytes (> 0) of the log into a fresh store. Returns true once everything is
  /// loaded. Removes a last record that a kill cut off: its change was never answered.
  bool recover(Store& store, std::int64_t bytes);
  /// Returns the number of changes and snapshot pieces recovered.
  std::int64_t recovered() const { return recovered_; }

  /// Appends a change. Large values go to the operating system immediately, small ones at commit().
  void append(const Change& change);
  /// Makes everything appended so far survive the end of this process (with `sync`, a power loss).
  void commit();
  /// Begins a snapshot if one is due, and writes about `bytes` bytes of it. A call is short, so
  /// that no client waits for the whole snapshot. The store may change meanwhile: it copies the
  /// values before it changes them.
  void save(Store& store, std::int64_t bytes);
  /// Returns true while a snapshot is being written.
  bool is_saving() const { return next_ != nullptr; }

 private:
  struct Source {
    std::string path;
    int generation = 0;
    bool is_snapshot = false;
  };
  std::string path(const char* kind, int generation) const;
  std::string unfinished() const;
  // Lists the newest snapshot and the logs after it. Throws Io if a log is missing.
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
  std::deque<Source> sources_;  ///< files that are still to be read
  std::unique_ptr<RecordReader> reader_;
  bool begun_ = false;  ///< the first record of reader_ is valid
  bool ended_ = false;  ///< the end record of a snapshot was read
  std::int64_t recovered_ = 0;
  int generation_ = 0;
  std::unique_ptr<RecordWriter> changes_;
  std::int64_t synced_ = 0;
  std::int64_t before_ = 0;             ///< bytes of changes in older files since the last snapshot
  std::int64_t last_bytes_ = 0;         ///< bytes of the last snapshot
  std::unique_ptr<RecordWriter> next_;  ///< the snapshot being written
  std::deque<Piece> pieces_;            ///< pieces of the snapshot still to be written
};

}  // namespace hetu::ps::server
