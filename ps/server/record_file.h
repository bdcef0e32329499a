// Files of records that are only ever added to: each record with its length and checksums, so that
// a reader knows one that was cut off by a kill from one that is damaged. Read by log.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>

#include "ps/server/messages.h"

namespace hetu::ps::server {

/// Writes records to a file: bytes of the record (u32), CRC-32C of them (u32), CRC-32C of these
/// eight bytes (u32), the bytes. What write() has taken survives the end of the process.
class RecordWriter {
 public:
  /// Goes on after the first `bytes` bytes of a file, which is made if it is not there; the rest is
  /// cut off. Throws Io: the file cannot be opened.
  RecordWriter(std::string path, std::int64_t bytes);
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
  /// Of all records so far.
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  void write_all(const Payload& large);
  [[noreturn]] void fail_to(const char* act) const;

  const std::string path_;
  int fd_ = -1;
  Bytes pending_;
  std::int64_t bytes_ = 0;
  std::int64_t written_ = 0;
};

/// Reads what RecordWriter has written, in its order.
class RecordReader {
 public:
  /// Throws Io: the file cannot be read.
  explicit RecordReader(std::string path);

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

  const std::string path_;
  std::ifstream in_;
  std::int64_t size_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace hetu::ps::server
