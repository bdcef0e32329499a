// Append-only files of records. Each record has a length and checksums, so that a reader can
// distinguish a record that a kill cut off from a damaged record. Read by log.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "ps/server/messages.h"

namespace hetu::ps::server {

/// Writes records to a file. The format of a record is: its length in bytes (u32), the CRC-32C of
/// its bytes (u32), the CRC-32C of these eight bytes (u32), then the bytes. Data that flush() has
/// written survives the end of the process.
class RecordWriter {
 public:
  /// Tag of the constructor that overwrites an old file.
  struct Over {};

  /// Opens a file to append after its first `bytes` bytes, and cuts off everything after them.
  /// Creates a missing file. Throws Io if the file can't be opened.
  RecordWriter(std::string path, std::int64_t bytes);
  /// Opens an existing file and overwrites its records from the beginning. This reuses memory that
  /// the system holds for the file already: getting fresh pages costs many times the copy itself.
  ///
  /// A write puts zeros after its records in place of the next head, and writes its own first head
  /// last. Whenever a kill comes, a reader with ends_at_zeros() sees complete new records and no
  /// old ones. A power loss may mix old and new records.
  RecordWriter(std::string path, Over over);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Appends one record that consists of `pieces`, one after the other. Small records wait for
  /// flush(). Throws Io as flush() does.
  void add(std::initializer_list<Payload> pieces);
  /// Writes everything pending to the operating system. Throws Io, with the system's error and the
  /// number of bytes written.
  void flush();
  /// Waits until the disk holds what was flushed. Throws Io.
  void sync();
  /// Renames the file. Throws Io.
  void move_to(const std::string& path);
  /// Removes what an overwritten file still holds after the last record. Throws Io.
  void cut();
  /// Returns the bytes of all records so far.
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  void write(const std::vector<Payload>& more);
  void write_at(std::int64_t at, const std::vector<Payload>& pieces);
  [[noreturn]] void fail_to(const char* act, std::int64_t after) const;

  std::string path_;
  const bool is_over_;
  int fd_ = -1;
  int error_ = 0;  ///< errno of the write that failed; no writes follow it
  Bytes pending_;
  std::int64_t bytes_ = 0;
  std::int64_t written_ = 0;
};

/// Reads records in the order in which RecordWriter wrote them.
class RecordReader {
 public:
  /// Opens the file. Throws Io if it can't be read.
  explicit RecordReader(std::string path);

  /// Declares that the file overwrote an old one, so that it ends where zeros stand in place of a
  /// head.
  void ends_at_zeros() { ends_at_zeros_ = true; }

  enum class Found { Record, End, Torn };
  /// Reads the next record. Returns Torn if the file ends within a record, or holds only zeros up
  /// to its end, as a power loss may leave them. Throws Io, with file and byte, if the bytes don't
  /// match their checksums.
  Found next(Bytes& record);
  /// Returns the offset of the end of the last record.
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// Throws Io with the file, the byte and the reason.
  [[noreturn]] void fail_at(std::int64_t byte, const std::string& what) const;

 private:
  void read(void* to, std::size_t bytes);
  bool is_zero_from(std::int64_t byte);
  bool is_end(const std::byte* head);

  const std::string path_;
  std::ifstream in_;
  std::int64_t size_ = 0;
  std::int64_t bytes_ = 0;
  bool ends_at_zeros_ = false;
};

}  // namespace hetu::ps::server
