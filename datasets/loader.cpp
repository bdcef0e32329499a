// A loader has two cursors in the global order: `done` is the caller's position, `ahead` that of
// its reading thread. The thread starts with the first next(), fills up to `prefetch` batches and
// puts them into `ready`; next() takes them from there and gives its old buffers back through
// `spare`. An error of the source ends the thread, and next() rethrows it after the batches that
// were read before it.
//
// Every function that moves the position stops the thread (halt) and drops its batches. The thread
// starts again with the next call of next(). Without prefetching there is no thread: next() reads,
// unless prepare() has already read one batch.
#include "datasets/loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "datasets/source.h"
#include "datasets/spare_columns.h"

namespace hetu {
namespace {

std::atomic<std::uint64_t> batches_read = 0;

std::string names(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) out += (out.empty() ? "" : ", ") + field.name;
  return out;
}

std::vector<Field> chosen_fields(const std::vector<Field>& all,
                                 const std::vector<std::string>& wanted) {
  if (wanted.empty()) return all;
  std::vector<Field> out;
  for (const std::string& name : wanted) {
    const auto same = [&name](const Field& field) { return field.name == name; };
    const auto found = std::find_if(all.begin(), all.end(), same);
    require(found != all.end(), "loader: the data has no field '{}'; its fields are: {}", name,
            names(all));
    require(std::none_of(out.begin(), out.end(), same), "loader: field '{}' is requested twice",
            name);
    out.push_back(*found);
  }
  return out;
}

void check_options(const LoaderOptions& options, const RowSource& source) {
  require(options.pipelines >= 1 && options.batch_size >= 1 && options.prefetch >= 0,
          "loader: pipelines {} and batch size {} must be at least 1, prefetch {} at least 0",
          options.pipelines, options.batch_size, options.prefetch);
  require(options.pipeline >= 0 && options.pipeline < options.pipelines,
          "loader: pipeline {} is out of range; there are {} pipelines, counted from 0",
          options.pipeline, options.pipelines);
  const auto shares = static_cast<int>(options.shares.size());
  require(shares == 0 || shares == options.pipelines,
          "loader: shares of {} pipelines are given, but there are {} pipelines", shares,
          options.pipelines);
  for (const std::int64_t rows : options.shares)
    require(rows >= 1, "loader: a pipeline's share must be at least 1 row, got {}", rows);
  const std::int64_t global = options.global_rows();
  require(source.rows() == RowSource::kUnknown || source.rows() >= global || options.every_row_once,
          "loader: an epoch of {} rows is shorter than one global batch of {} ({})", source.rows(),
          global, options.division());
}

}  // namespace

std::int64_t LoaderOptions::rows_of(int of) const {
  return shares.empty() ? batch_size : shares[static_cast<std::size_t>(of)];
}

std::int64_t LoaderOptions::rows_before(int of) const {
  return shares.empty() ? of * batch_size
                        : std::accumulate(shares.begin(), shares.begin() + of, std::int64_t{0});
}

std::string LoaderOptions::division() const {
  return shares.empty() ? fmt::format("{} pipelines x {}", pipelines, batch_size)
                        : fmt::format("{}", fmt::join(shares, " + "));
}

struct Loader::Impl {
  struct Cursor {
    std::int64_t epoch = 0;
    std::int64_t index = 0;
  };

  // The slices into which the rows of epochs from `epoch` on are cut.
  struct Division {
    std::int64_t epoch = 0;
    int pipelines = 1;
    int pipeline = 0;
  };

  Impl(std::unique_ptr<RowSource> from, LoaderOptions with)
      : source(std::move(from)), options(std::move(with)) {
    divisions.push_back({0, options.pipelines, options.pipeline});
  }
  ~Impl() { halt(); }

  const Division& division(std::int64_t epoch) const {
    std::size_t last = divisions.size() - 1;
    while (divisions[last].epoch > epoch) --last;
    return divisions[last];
  }
  std::int64_t global(std::int64_t epoch) const {
    return options.shares.empty() ? division(epoch).pipelines * options.batch_size
                                  : options.global_rows();
  }
  // Returns the offset of this worker's slice within a global batch.
  std::int64_t offset(std::int64_t epoch) const {
    return options.rows_before(division(epoch).pipeline);
  }

  // Moves to the next epoch if the current one has no whole global batch left.
  void roll(Cursor& cursor) {
    if (source->has(cursor.epoch, cursor.index + global(cursor.epoch) - 1)) return;
    if (cursor.index != 0) cursor = {cursor.epoch + 1, 0};
    require(source->has(cursor.epoch, global(cursor.epoch) - 1),
            "loader: epoch {} of {} is shorter than one global batch of {}", cursor.epoch,
            source->order(), global(cursor.epoch));
  }

  void read(Cursor& cursor, Batch& batch) {
    if (!options.every_row_once) roll(cursor);
    const std::int64_t whole = global(cursor.epoch), before = offset(cursor.epoch);
    batch.of_all =
        options.every_row_once ? source->rows_from(cursor.epoch, cursor.index, whole) : whole;
    const std::int64_t rows =
        std::clamp<std::int64_t>(batch.of_all - before, 0, options.rows_of(options.pipeline));
    batch.number = ++batches_read;
    batch.epoch = cursor.epoch;
    batch.first = cursor.index + before;
    resize_batch(batch, fields, rows);
    if (rows > 0) source->read(batch);
    check_read(batch);
    cursor.index += batch.of_all;
  }

  // Checks that the source left names, types, shapes and sizes of the fields unchanged. Otherwise
  // the model would read garbage.
  void check_read(const Batch& batch) const {
    const auto type_of = [](const FieldData& data) {
      return fmt::format("'{}' {} {}, {} bytes", data.name, dtype_name(data.dtype),
                         to_string(data.shape), data.bytes.size());
    };
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Field& field = fields[i];
      Shape shape = {batch.rows};
      shape.insert(shape.end(), field.shape.begin(), field.shape.end());
      const std::int64_t bytes = element_count(shape) * dtype_bytes(field.dtype);
      const bool is_there = i < batch.fields.size();
      require(is_there && batch.fields[i].name == field.name &&
                  batch.fields[i].dtype == field.dtype && batch.fields[i].shape == shape &&
                  static_cast<std::int64_t>(batch.fields[i].bytes.size()) == bytes,
              "loader: {}: rows from {} of epoch {}: expected '{}' {} {}, {} bytes, got {}",
              source->order(), batch.first, batch.epoch, field.name, dtype_name(field.dtype),
              to_string(shape), bytes, is_there ? type_of(batch.fields[i]) : "no such field");
    }
  }

  Batch any_spare() {
    Batch batch;
    if (spare.empty()) return batch;
    batch = std::move(spare.back());
    spare.pop_back();
    return batch;
  }

  void read_ahead() {
    std::unique_lock lock(mutex);
    try {
      while (true) {
        room.wait(lock, [this] {
          return stop || ready.size() < static_cast<std::size_t>(options.prefetch);
        });
        if (stop) return;
        Batch batch = any_spare();
        lock.unlock();
        read(ahead, batch);
        lock.lock();
        ready.push_back(std::move(batch));
        filled.notify_one();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      error = std::current_exception();
      filled.notify_one();
    }
  }

  void prepare() {
    if (!ready.empty() || error || !source->may_be_early()) return;
    Batch batch = any_spare();
    ahead = done;
    try {
      read(ahead, batch);
      ready.push_back(std::move(batch));
    } catch (...) {
      error = std::current_exception();
    }
  }

  // Takes the next batch, waiting for the reading thread. Without a reading thread (prefetch 0), an
  // error from prepare() is thrown once, and the next call reads again.
  void take(Batch& batch) {
    if (options.prefetch > 0 && !reader.joinable()) reader = std::thread([this] { read_ahead(); });
    std::unique_lock lock(mutex);
    filled.wait(lock, [this] { return !ready.empty() || error; });
    if (ready.empty()) {
      const std::exception_ptr first = error;
      if (options.prefetch == 0) error = nullptr;
      std::rethrow_exception(first);
    }
    std::swap(batch, ready.front());
    spare.push_back(std::move(ready.front()));
    ready.pop_front();
    room.notify_one();
  }

  void halt() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    room.notify_one();
    if (reader.joinable()) reader.join();
    stop = false;
    ready.clear();
    error = nullptr;
  }

  std::unique_ptr<RowSource> source;
  LoaderOptions options;
  std::vector<Field> fields;
  std::shared_ptr<SpareColumns> columns;
  std::vector<Division> divisions;  // ascending epochs, first 0; unchanged while a thread reads
  Cursor done;                      // position of the caller
  Cursor ahead;                     // position of the reading thread, while it runs

  std::thread reader;
  std::mutex mutex;
  std::condition_variable room, filled;
  std::deque<Batch> ready;
  std::vector<Batch> spare;
  std::exception_ptr error;
  bool stop = false;
};

Loader::Loader(std::unique_ptr<RowSource> source, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(options))) {
  require(impl_->source != nullptr, "loader: the data source is null");
  check_options(impl_->options, *impl_->source);
  impl_->fields = chosen_fields(impl_->source->fields(), impl_->options.fields);
  impl_->source->select(impl_->fields);
  impl_->columns = std::make_shared<SpareColumns>(impl_->fields.size());
}

Loader::~Loader() = default;

void Loader::next(Batch& batch) {
  if (impl_->options.prefetch == 0 && impl_->ready.empty() && !impl_->error) {
    impl_->read(impl_->done, batch);
    return;
  }
  impl_->take(batch);
  impl_->done.epoch = batch.epoch;
  impl_->done.index = batch.first - impl_->offset(batch.epoch) + batch.of_all;
}

const std::shared_ptr<SpareColumns>& Loader::spare() const { return impl_->columns; }

// The reading thread appends to a deque, which leaves the address of its first element unchanged.
const Batch* Loader::ahead() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ready.empty() ? nullptr : &impl_->ready.front();
}

void Loader::prepare() {
  if (impl_->options.prefetch == 0) impl_->prepare();
}

Position Loader::position() const {
  return {impl_->done.epoch, impl_->done.index, impl_->global(impl_->done.epoch),
          impl_->source->order()};
}

void Loader::seek(const Position& position) {
  const std::int64_t global = impl_->global(position.epoch);
  require(
      position.global_batch == global,
      "loader: saved with a global batch of {} rows, but this run has {} ({}); keep pipelines x "
      "batch size",
      position.global_batch, global,
      impl_->options.shares.empty()
          ? fmt::format("{} pipelines x {}", impl_->division(position.epoch).pipelines,
                        impl_->options.batch_size)
          : impl_->options.division());
  const std::string order = impl_->source->order();
  require(position.order == order,
          "loader: saved with the data '{}', but this run has '{}'; use the same data and seed",
          position.order, order);
  require(position.epoch >= 0 && position.index >= 0 && position.index % global == 0,
          "loader: epoch {}, row {} is not the start of a global batch of {}", position.epoch,
          position.index, global);
  impl_->halt();
  impl_->done = impl_->ahead = {position.epoch, position.index};
}

void Loader::divide(std::int64_t epoch, int pipelines, int pipeline) {
  HETU_ASSERT(impl_->options.shares.empty());  // pipelines that may be lost have equal shares
  require(
      pipelines >= 1 && pipeline >= 0 && pipeline < pipelines,
      "loader: slice {} of {} does not exist; at least 1 slice is needed, and slices count from "
      "0",
      pipeline, pipelines);
  require(
      epoch > impl_->done.epoch,
      "loader: the slices of epoch {} cannot be changed, because epoch {} has begun; change them "
      "from epoch {} on",
      epoch, impl_->done.epoch, impl_->done.epoch + 1);
  if (impl_->source->rows() == RowSource::kUnknown) return;
  impl_->halt();  // the thread may have read ahead into that epoch
  impl_->ahead = impl_->done;
  auto& all = impl_->divisions;
  while (all.back().epoch >= epoch) all.pop_back();
  all.push_back({epoch, pipelines, pipeline});
}

void Loader::seek_step(std::int64_t step) {
  const std::int64_t steps = batches_per_epoch();
  require(steps > 0, "loader: the number of rows of '{}' is unknown, so step {} cannot be found",
          impl_->source->order(), step);
  require(step >= 0, "loader: step {} is negative", step);
  impl_->halt();
  impl_->done = impl_->ahead = {step / steps, step % steps * impl_->global(0)};
}

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t rows = impl_->source->rows();
  return rows == RowSource::kUnknown ? -1 : rows / global_batch();
}

std::int64_t Loader::dropped_per_epoch() const {
  const std::int64_t rows = impl_->source->rows();
  return rows == RowSource::kUnknown ? -1 : rows % global_batch();
}

std::int64_t Loader::skipped_rows() const { return impl_->source->skipped_rows(); }

const std::vector<Field>& Loader::fields() const { return impl_->fields; }

bool Loader::gives_every_row_once() const { return impl_->options.every_row_once; }

std::int64_t Loader::global_batch() const { return impl_->global(impl_->done.epoch); }

}  // namespace hetu
