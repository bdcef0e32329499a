// Files of records that are only ever added to: each record with its length and checksums, so that
// a reader knows one that was cut off by a kill from one that is damaged. Read by log.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "ps/server/messages.h"

namespace hetu::ps::server {

/// Writes records to a file: bytes of the record (u32), CRC-32C of them (u32), CRC-32C of these
/// eight bytes (u32), the bytes. What flush() has handed over survives the end of the process.
class RecordWriter {
 public:
  /// Marks the constructor that writes over an old file.
  struct Over {};

  /// Goes on after the first `bytes` bytes of a file, which is made if it is not there; the rest is
  /// cut off. Throws Io: the file cannot be opened.
  RecordWriter(std::string path, std::int64_t bytes);
  /// Writes from the beginning of a file that is there, over the records that it holds: the system
  /// has memory for it already, and memory that is fresh costs many times what filling it does. Of
  /// what is written at once the first head comes last, and behind it stand zeros in place of a
  /// head: wherever a kill comes, a reader that was told ends_at_zeros() sees whole records, and
  /// none of the old ones. A loss of power may mix old and new.
  RecordWriter(std::string path, Over over);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Adds a record that consists of these, one after the other. Small ones wait for flush(). Throws
  /// Io as flush does.
  void add(std::initializer_list<Payload> pieces);
  /// Hands everything to the system. Throws Io, which says what the system said and how far it
  /// came.
  void flush();
  /// Sleeps until the disk has what was flushed. Throws Io.
  void sync();
  /// Renames the file. Throws Io.
  void move_to(const std::string& path);
  /// Cuts off what an old file had behind the last record. Throws Io.
  void cut();
  /// Of all records so far.
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  void write(const std::vector<Payload>& more);
  void write_at(std::int64_t at, const std::vector<Payload>& pieces);
  [[noreturn]] void fail_to(const char* act, std::int64_t after) const;

  std::string path_;
  const bool is_over_;
  int fd_ = -1;
  int error_ = 0;  ///< of the write that failed: there are no others
  Bytes pending_;
  std::int64_t bytes_ = 0;
  std::int64_t written_ = 0;
};

/// Reads what RecordWriter has written, in its order.
class RecordReader {
 public:
  /// Throws Io: the file cannot be read.
  explicit RecordReader(std::string path);

  /// Says that the file was written over an old one: it ends where zeros stand in place of a head.
  void ends_at_zeros() { ends_at_zeros_ = true; }

  enum class Found { Record, End, Torn };
  /// The next record. Torn: the file ends within one, or there are zeros up to its end, as a loss
  /// of power may leave them. Throws Io, naming file and byte: a record that is not what was
  /// written.
  Found next(Bytes& record);
  /// Where the last record ended.
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
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
