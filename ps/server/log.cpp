// The log is a state-machine log with snapshots: a store is a function of its changes, so replaying
// them through the same code rebuilds it. Files are numbered by generation. When a snapshot begins,
// the changes before it are in generations up to G - 1, and new changes go to log G:
//
//   server-0.log.3        changes before the snapshot   -> spare once snapshot 4 is complete
//   server-0.unfinished   snapshot 4, written in steps  -> renamed to server-0.snapshot.4
//   server-0.log.4        changes since then
//
// After a kill at any moment, the newest complete snapshot and the logs from its generation on hold
// the whole state. The first record of a file tells whether it overwrites a spare. If so, the
// reader accepts zeros in place of a head as the end of the file (see record_file.h).

#include "ps/server/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

namespace hetu::ps::server {

namespace {

namespace fs = std::filesystem;

/// Kind of a record: a value of Change::Of, or one of these.
constexpr std::uint8_t kPiece = 16, kEnd = 17, kBeginning = 18;
constexpr std::uint8_t kLogVersion = 2;
constexpr std::size_t kHeadBytes = 1 + 8 + 4;  // kind, `who`, bytes of `words`

void add(RecordWriter& to, std::uint8_t what, std::uint64_t who, const Payload& words,
         const Payload& values) {
  std::byte head[kHeadBytes];
  const auto bytes = static_cast<std::uint32_t>(words.bytes);
  std::memcpy(head, &what, 1);
  std::memcpy(head + 1, &who, 8);
  std::memcpy(head + 9, &bytes, 4);
  to.add({{head, sizeof head}, words, values});
}

Payload of(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

/// A record split into its fields, which point into the record.
struct Parts {
  std::uint8_t what = 0;
  std::uint64_t who = 0;
  Payload words, values;
};

std::optional<Parts> take_apart(const Bytes& record) {
  if (record.size() < kHeadBytes) return std::nullopt;
  Parts parts;
  std::uint32_t bytes = 0;
  std::memcpy(&parts.what, record.data(), 1);
  std::memcpy(&parts.who, record.data() + 1, 8);
  std::memcpy(&bytes, record.data() + 9, 4);
  if (bytes > record.size() - kHeadBytes) return std::nullopt;
  parts.words = {record.data() + kHeadBytes, bytes};
  parts.values = {record.data() + kHeadBytes + bytes, record.size() - kHeadBytes - bytes};
  return parts;
}

/// Returns the files "PREFIX.G" of a folder, by G.
std::map<int, std::string> files(const std::string& folder, const std::string& prefix) {
  std::map<int, std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    const std::string number = name.substr(std::min(name.size(), prefix.size()));
    const bool is_number = !number.empty() && number.size() < 10 &&
                           number.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && name.rfind(prefix, 0) == 0) found[std::stoi(number)] = at->path();
  }
  if (error) {
    fail(Code::Io, "the folder {} for the logs of parameter servers cannot be read: {}", folder,
         error.message());
  }
  return found;
}

}  // namespace

Log::Log(LogOptions options) : options_(std::move(options)) {
  find_sources();
  std::error_code ignored;
  fs::remove(unfinished(), ignored);
  if (sources_.empty()) changes_ = begin(path("log", 0), "log", 0);
}

std::string Log::path(const char* kind, int generation) const {
  return fmt::format("{}/server-{}.{}.{}", options_.folder, options_.server, kind, generation);
}

std::string Log::unfinished() const {
  return fmt::format("{}/server-{}.unfinished", options_.folder, options_.server);
}

std::string Log::spare(const char* kind) const {
  return fmt::format("{}/server-{}.spare-{}", options_.folder, options_.server, kind);
}

void Log::find_sources() {
  const std::string stem = fmt::format("server-{}.", options_.server);
  const auto snapshots = files(options_.folder, stem + "snapshot.");
  const auto logs = files(options_.folder, stem + "log.");
  if (snapshots.empty() && logs.empty()) return;
  if (!snapshots.empty()) {
    generation_ = snapshots.rbegin()->first;
    sources_.push_back({snapshots.rbegin()->second, generation_, true});
  }
  const int last = logs.empty() ? generation_ : std::max(generation_, logs.rbegin()->first);
  for (int g = generation_; g <= last; ++g) {
    if (logs.count(g) == 0) {
      fail(Code::Io, "{} is missing, so the log of parameter server {} cannot be replayed",
           path("log", g), options_.server);
    }
    sources_.push_back({path("log", g), g, false});
  }
}

// Every file begins with a record that names its job, server and generation. A file that overwrites
// a spare gets its name only once this record is written.
std::unique_ptr<RecordWriter> Log::begin(const std::string& path, const char* kind,
                                         int generation) {
  const std::string old = spare(kind);
  std::error_code ignored;
  const bool is_over = !options_.sync && fs::exists(old, ignored);
  auto file = is_over ? std::make_unique<RecordWriter>(old, RecordWriter::Over{})
                      : std::make_unique<RecordWriter>(path, 0);
  ByteWriter to(kLogVersion, kBeginning);
  to.text(options_.job);
  to.number(options_.server);
  to.number(options_.servers);
  to.number(generation);
  to.number(is_over ? 1 : 0);
  const Bytes words = to.take();
  add(*file, kBeginning, 0, of(words), {});
  file->flush();
  if (is_over) file->move_to(path);
  return file;
}

void Log::check_beginning(RecordReader& from, const Bytes& record, const Source& source) const {
  const auto parts = take_apart(record);
  if (!parts || parts->what != kBeginning) {
    from.fail_at(0, "this is not a log of a parameter server; remove it, or choose another folder");
  }
  std::string job;
  int server = 0, servers = 0, generation = 0, is_over = 0;
  try {
    ByteReader words(parts->words.data, parts->words.bytes);
    words.head(kLogVersion);
    job = words.text("job");
    server = words.number<int>();
    servers = words.number<int>();
    generation = words.number<int>();
    is_over = words.number<int>();
    words.end();
  } catch (const Error& error) {
    from.fail_at(0, error.what());
  }
  if (job != options_.job) {
    from.fail_at(0, fmt::format("this is the log of job {}, not of job {}, "
                                "which would resume from it; remove it, or choose another folder",
                                job, options_.job));
  }
  if (server != options_.server || servers != options_.servers || generation != source.generation) {
    from.fail_at(0, fmt::format("this is part {} of the log of parameter server {} of {}, "
                                "not part {} of the log of server {} of {}",
                                generation, server, servers, source.generation, options_.server,
                                options_.servers));
  }
  if (is_over != 0) from.ends_at_zeros();
}

bool Log::recover(Store& store, std::int64_t bytes) {
  HETU_ASSERT(bytes > 0);
  Bytes record;
  for (std::int64_t done = 0; done < bytes && !sources_.empty();) {
    const Source source = sources_.front();
    if (!reader_) {
      reader_ = std::make_unique<RecordReader>(source.path);
      begun_ = ended_ = false;
    }
    const RecordReader::Found found = reader_->next(record);
    if (found != RecordReader::Found::Record) {
      end_source(source, found);
      sources_.pop_front();
      reader_.reset();
      continue;
    }
    done += static_cast<std::int64_t>(record.size());
    if (begun_)
      take(store, source, record);
    else
      check_beginning(*reader_, record, source);
    begun_ = true;
  }
  return sources_.empty();
}

void Log::take(Store& store, const Source& source, const Bytes& record) {
  const std::int64_t byte = reader_->bytes() - static_cast<std::int64_t>(record.size());
  const auto parts = take_apart(record);
  const bool is_known = parts && !ended_ &&
                        (source.is_snapshot ? parts->what == kPiece || parts->what == kEnd
                                            : parts->what <= static_cast<int>(Change::Of::Worker));
  if (!is_known) reader_->fail_at(byte, "a record that does not belong here");
  ended_ = parts->what == kEnd;
  if (ended_) return;
  try {
    if (source.is_snapshot) {
      store.load(Bytes(parts->words.data, parts->words.data + parts->words.bytes), parts->values);
    } else {
      store.replay({static_cast<Change::Of>(parts->what), parts->who, parts->words, parts->values});
    }
  } catch (const Error& error) {
    reader_->fail_at(byte, error.what());
  }
  ++recovered_;
}

// Only the last log may be cut off: the process was killed while it wrote. The end of an earlier
// file was complete before the next file began.
void Log::end_source(const Source& source, RecordReader::Found end) {
  const std::int64_t bytes = reader_->bytes();
  if (source.is_snapshot) {
    if (!ended_) reader_->fail_at(bytes, "the log is damaged: the snapshot has no end");
    last_bytes_ = bytes;
    return;
  }
  const bool is_last = sources_.size() == 1;
  if (!is_last && (end == RecordReader::Found::Torn || !begun_)) {
    reader_->fail_at(bytes, "the log is damaged: it ends here, but there is a next part of it");
  }
  generation_ = source.generation;
  if (!is_last) {
    before_ += bytes;
  } else if (begun_) {
    changes_ = std::make_unique<RecordWriter>(source.path, bytes);
  } else {
    changes_ = begin(source.path, "log", generation_);
  }
}

void Log::append(const Change& change) {
  add(*changes_, static_cast<std::uint8_t>(change.of), change.who, change.words, change.values);
}

void Log::commit() {
  changes_->flush();
  if (!options_.sync || changes_->bytes() == synced_) return;
  changes_->sync();
  synced_ = changes_->bytes();
}

// Written in steps of `bytes`, interleaved with the event loop.
void Log::save(Store& store, std::int64_t bytes) {
  if (!next_) {
    const auto grown = static_cast<double>(before_ + changes_->bytes());
    const double due = options_.snapshot_after * static_cast<double>(last_bytes_);
    if (grown < std::max(due, static_cast<double>(options_.least_bytes))) return;
    begin_snapshot(store);
  }
  const std::int64_t until = next_->bytes() + bytes;
  while (!pieces_.empty() && next_->bytes() < until) {
    add(*next_, kPiece, 0, of(pieces_.front().words), pieces_.front().values);
    pieces_.pop_front();
  }
  if (pieces_.empty()) finish_snapshot();
}

// The snapshot holds everything up to now, so the changes that follow go to the next log.
void Log::begin_snapshot(Store& store) {
  commit();
  before_ += changes_->bytes();
  ++generation_;
  changes_ = begin(path("log", generation_), "log", generation_);
  synced_ = 0;
  next_ = begin(unfinished(), "snapshot", generation_);
  std::vector<Piece> pieces = store.save();
  pieces_.assign(std::make_move_iterator(pieces.begin()), std::make_move_iterator(pieces.end()));
}

void Log::finish_snapshot() {
  add(*next_, kEnd, 0, {}, {});
  next_->flush();
  next_->cut();
  if (options_.sync) next_->sync();
  last_bytes_ = next_->bytes();
  next_.reset();
  before_ = 0;
  if (std::rename(unfinished().c_str(), path("snapshot", generation_).c_str()) != 0) {
    fail(Code::Io, "cannot rename {}: {}", unfinished(), std::strerror(errno));
  }
  if (options_.sync) sync_folder();
  std::error_code ignored;  // a file that can't be removed is not read again
  for (const char* kind : {"log", "snapshot"}) {
    const std::string prefix = fmt::format("server-{}.{}.", options_.server, kind);
    for (const auto& [generation, name] : files(options_.folder, prefix)) {
      if (generation >= generation_) continue;
      if (options_.sync) {
        fs::remove(name, ignored);
      } else {
        fs::rename(name, spare(kind), ignored);
      }
    }
  }
}

void Log::sync_folder() const {
  const int fd = open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) fail(Code::Io, "cannot sync {}: {}", options_.folder, std::strerror(error));
}

}  // namespace hetu::ps::server
