// Sharing of samples between the readers of a job. The first reader (readers[0], the worker with
// the lowest stage) reads a global batch with all fields. It sends each other reader a header and
// the fields of that reader, restricted to the slice of the reader's pipeline. For 2 pipelines of 2
// stages, where stage 0 reads "x" and stage 1 reads "y":
//
//   worker 0 (pipeline 0, stage 0)  reads x, y of both pipelines
//   worker 1 (pipeline 0, stage 1)  receives y, rows 0 to B-1
//   worker 2 (pipeline 1, stage 0)  receives x, rows B to 2B-1
//   worker 3 (pipeline 1, stage 1)  receives y, rows B to 2B-1
//
// A reader that is not the first waits for a worker of a lower stage, or of the same stage in an
// earlier pipeline, never the other way round. That order rules out a deadlock with the messages of
// the pipeline itself.
#include "executor/job/shared_samples.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "executor/job/job.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

using Reader = ReaderSet::Reader;

// The stage number of the single process of CompareSingle.
constexpr int kSingle = std::numeric_limits<int>::max();
constexpr int kSameData = 4;  // the part of check_same's tag; the constructor uses 1 to 3

void add_missing(std::vector<std::string>& all, const std::vector<std::string>& some) {
  for (const std::string& field : some)
    if (std::find(all.begin(), all.end(), field) == all.end()) all.push_back(field);
}

std::int64_t sample_bytes(const FieldData& data) {
  return data.shape[0] == 0 ? 0 : static_cast<std::int64_t>(data.bytes.size()) / data.shape[0];
}

// The message that precedes the fields of a batch.
struct Header {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  // of the first sample, over all pipelines
  std::int64_t rows = 0;   // over all slices; fewer at the end of data that is read once
};

// A row source that reads batches for all readers, or receives its part of them.
class SharedSamples final : public RowSource {
 public:
  SharedSamples(std::unique_ptr<RowSource> data, const LoaderOptions& options, ReaderSet set)
      : options_(options),
        set_(std::move(set)),
        whole_(std::move(data), whole_options(options, set_)) {}

  const std::vector<Field>& fields() const override { return whole_.fields(); }
  // Only the first reader could know the number, and for a stream not before an epoch ends.
  std::int64_t rows() const override { return kUnknown; }
  // Reading ahead is not allowed: other readers wait for the first reader, or this reader waits
  // for it.
  bool may_be_early() const override { return false; }
  std::string order() const override { return whole_.position().order; }
  void select(const std::vector<Field>& fields) override { own_ = fields; }
  std::int64_t skipped_rows() const override { return whole_.skipped_rows(); }

  bool has(std::int64_t epoch, std::int64_t row) override {
    const std::int64_t global = whole_.global_batch();
    const Header wanted = {epoch, row / global * global};
    if (!here_) draws() ? draw(wanted) : receive();
    return here_->epoch == wanted.epoch && here_->index == wanted.index;
  }

  // A batch that is still held from before had rows of other pipelines only, so it is dropped.
  std::int64_t rows_from(std::int64_t epoch, std::int64_t first, std::int64_t /*most*/) override {
    const Header wanted = {epoch, first};
    if (here_ && (here_->epoch != epoch || here_->index != first)) here_.reset();
    if (!here_) draws() ? draw(wanted) : receive();
    return here_->rows;
  }

  void read(Batch& batch) override {
    HETU_ASSERT(here_ && here_->epoch == batch.epoch);
    here_.reset();
    for (FieldData& to : batch.fields) {
      FieldData& from = (draws() ? *drawn_ : received_).at(to.name);
      if (!draws() || is_mine_alone(to)) {
        std::swap(to.bytes, from.bytes);
      } else {
        std::memcpy(to.bytes.data(), slice(from, set_.readers[0]), to.bytes.size());
      }
    }
  }

 private:
  // A batch in transit. Its memory is kept until all messages have been sent.
  struct Sent {
    Header header;
    std::shared_ptr<Batch> batch;
    std::vector<std::unique_ptr<comm::Request>> requests;
  };

  static LoaderOptions whole_options(const LoaderOptions& options, const ReaderSet& set) {
    LoaderOptions whole = options;
    whole.fields.clear();
    for (const Reader& reader : set.readers) add_missing(whole.fields, reader.fields);
    if (set.one_pipeline) return whole;
    whole.batch_size = options.global_rows();
    whole.shares.clear();
    whole.pipelines = 1;
    whole.pipeline = 0;
    return whole;
  }

  bool draws() const { return set_.me == 0; }

  // Returns how many of a batch's rows belong to the reader.
  std::int64_t rows_of(const Reader& reader, std::int64_t rows) const {
    const int place = set_.one_pipeline ? 0 : reader.pipeline;
    return std::clamp<std::int64_t>(rows - options_.rows_before(place), 0, options_.rows_of(place));
  }

  const std::byte* slice(const FieldData& data, const Reader& reader) const {
    const int place = set_.one_pipeline ? 0 : reader.pipeline;
    return data.bytes.data() + options_.rows_before(place) * sample_bytes(data);
  }

  comm::Tag tag(int reader) const { return comm::make_tag(kRowsTag, reader, 0, 0, set_.channel); }

  // Returns true if no other reader takes the field, so that its memory can be swapped instead of
  // copied.
  bool is_mine_alone(const FieldData& data) const {
    const auto& readers = set_.readers;
    return data.shape == drawn_->at(data.name).shape &&
           std::none_of(readers.begin() + 1, readers.end(), [&](const Reader& reader) {
             const auto& read = reader.fields;
             return std::find(read.begin(), read.end(), data.name) != read.end();
           });
  }

  // Releases batches whose messages have been sent, and reuses one of them for the next batch.
  void forget_sent() {
    drawn_.reset();
    while (!sent_.empty()) {
      Sent& first = sent_.front();
      if (!std::all_of(first.requests.begin(), first.requests.end(),
                       [](const auto& request) { return request->done(); }))
        break;
      drawn_ = std::move(first.batch);
      sent_.pop_front();
    }
    if (!drawn_) drawn_ = std::make_shared<Batch>();
  }

  void draw(const Header& wanted) {
    const Position at = whole_.position();
    if (at.epoch != wanted.epoch || at.index != wanted.index)
      whole_.seek({wanted.epoch, wanted.index, at.global_batch, at.order});
    forget_sent();
    whole_.next(*drawn_);
    const std::int64_t before = set_.one_pipeline ? options_.rows_before(options_.pipeline) : 0;
    here_ = Header{drawn_->epoch, drawn_->first - before, drawn_->of_all};
    if (!std::exchange(looked_, true)) warn_of_equal_slices();
    sent_.push_back({*here_, drawn_, {}});
    for (std::size_t r = 1; r < set_.readers.size(); ++r) send(sent_.back(), r);
  }

  void send(Sent& message, std::size_t to) {
    const Reader& reader = set_.readers[to];
    const comm::Tag at = tag(static_cast<int>(to));
    const auto post = [&](const void* data, std::size_t bytes) {
      message.requests.push_back(set_.links->send(reader.worker, at, data, bytes));
    };
    post(&message.header, sizeof(Header));
    const std::int64_t rows = rows_of(reader, message.header.rows);
    if (rows == 0) return;
    for (const std::string& name : reader.fields) {
      const FieldData& data = message.batch->at(name);
      post(slice(data, reader), static_cast<std::size_t>(rows * sample_bytes(data)));
    }
  }

  void receive() {
    const auto post = [&](void* data, std::size_t bytes) {
      const int from = set_.readers[0].worker;
      const auto what = [&] {
        return fmt::format("the next samples of '{}', which worker {} reads for all workers",
                           order(), from);
      };
      comm::Transport& links = *set_.links;
      links.wait(*links.recv(from, tag(set_.me), data, bytes), what);
    };
    Header header;
    post(&header, sizeof(Header));
    const Reader& me = set_.readers[static_cast<std::size_t>(set_.me)];
    const std::int64_t rows = rows_of(me, header.rows);
    resize_batch(received_, own_, rows);
    for (FieldData& data : received_.fields)
      if (rows > 0) post(data.bytes.data(), data.bytes.size());
    here_ = header;
  }

  void warn_of_equal_slices() const {
    const bool short_one = drawn_->rows < whole_.global_batch();
    const int slices = set_.one_pipeline || short_one ? 1 : options_.pipelines;
    for (int d = 1; d < slices; ++d) {
      const bool equal =
          std::all_of(drawn_->fields.begin(), drawn_->fields.end(), [&](const FieldData& data) {
            const std::int64_t rows = std::min(options_.rows_of(0), options_.rows_of(d));
            const auto* const other =
                data.bytes.data() + options_.rows_before(d) * sample_bytes(data);
            return std::memcmp(data.bytes.data(), other,
                               static_cast<std::size_t>(rows * sample_bytes(data))) == 0;
          });
      if (!equal) continue;
      log(Level::Warning,
          "{}: pipelines 0 and {} get the same {} samples in the first step; each pipeline should "
          "get different samples, {} in all per step ({})",
          order(), d, std::min(options_.rows_of(0), options_.rows_of(d)), options_.global_rows(),
          options_.division());
      return;
    }
  }

  LoaderOptions options_;
  ReaderSet set_;
  Loader whole_;  // reads all slices and fields; only the first reader reads from it
  std::vector<Field> own_;
  std::optional<Header> here_;  // the batch that was read or received, until read() takes it
  std::shared_ptr<Batch> drawn_;
  Batch received_;
  std::deque<Sent> sent_;
  bool looked_ = false;
};

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace

Readers::Readers(const Job& job, const std::vector<std::string>& single)
    : links_(job.transport()), pipeline_(job.plan().pipeline) {
  std::vector<std::string> own;
  for (const FeedSpec& field : job.plan().fields) own.push_back(field.name);
  const auto what = [] { return std::string("the fields that each worker reads"); };
  const auto gather = [&](const std::string& mine, int part) {
    return gather_texts(mine, links_, {comm::make_tag(kRowsTag, 0, 0, 1 + part, 0), what});
  };
  const auto mine = fmt::format("{} {}", pipeline_, job.plan().stage());
  const std::vector<std::string> places = gather(mine, 0), fields = gather(text_of(own), 1),
                                 singles = gather(text_of(single), 2);
  const auto add = [&](int worker, int pipeline, int stage, const std::string& lines) {
    Reader reader{worker, pipeline, stage, {}};
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) reader.fields.push_back(line);
    if (!reader.fields.empty()) readers_.push_back(std::move(reader));
  };
  for (int w = 0; w < links_.workers(); ++w) {
    std::istringstream place(places[w]);
    int pipeline = 0, stage = 0;
    place >> pipeline >> stage;
    add(w, pipeline, stage, fields[w]);
  }
  // Forwards go from lower stages to higher ones. A worker that waits for the worker of the first
  // stage therefore waits for one that does not wait for it.
  std::stable_sort(readers_.begin(), readers_.end(), [](const Reader& a, const Reader& b) {
    return std::tie(a.stage, a.worker) < std::tie(b.stage, b.worker);
  });
  for (int w = 0; w < links_.workers(); ++w)
    for (int d = 0; d < job.plan().options.pipelines; ++d) add(w, d, kSingle, singles[w]);
}

ReaderSet Readers::open(bool apart, bool compared, const std::vector<std::string>& fields) {
  ReaderSet set{&links_, {}, -1, opened_++, apart};
  for (const Reader& reader : readers_) {
    const bool is_single = reader.stage == kSingle;
    if ((apart && reader.pipeline != pipeline_) || (is_single && !compared)) continue;
    Reader of_run = reader;
    std::erase_if(of_run.fields, [&](const std::string& field) {
      return !fields.empty() && std::find(fields.begin(), fields.end(), field) == fields.end();
    });
    if (of_run.fields.empty()) continue;
    if (reader.worker == links_.worker() && !is_single)
      set.me = static_cast<int>(set.readers.size());
    set.readers.push_back(std::move(of_run));
  }
  return set;
}

ReaderSet Readers::single(ReaderSet compared, int pipeline) const {
  const auto found =
      std::find_if(compared.readers.begin(), compared.readers.end(), [&](const Reader& reader) {
        return reader.stage == kSingle && reader.worker == links_.worker() &&
               reader.pipeline == pipeline;
      });
  compared.me =
      found == compared.readers.end() ? -1 : static_cast<int>(found - compared.readers.begin());
  return compared;
}

void Readers::check_same(const Loader* loader) const {
  const auto what = [] { return std::string("the data that each worker reads"); };
  const std::vector<std::string> orders =
      gather_texts(loader != nullptr ? loader->position().order : "", links_,
                   {comm::make_tag(kRowsTag, 0, 0, kSameData, 0), what});
  int first = -1;
  for (int w = 0; w < std::ssize(orders); ++w) {
    const std::string& order = orders[static_cast<std::size_t>(w)];
    if (order.empty()) continue;
    if (first < 0) first = w;
    const std::string& known = orders[static_cast<std::size_t>(first)];
    require(order == known,
            "worker {} reads the data '{}', worker {} reads '{}'. Hetu expects the same rows on "
            "every worker and shares them out itself: give every worker all rows, without sharding "
            "by rank",
            first, known, w, order);
  }
}

std::unique_ptr<Loader> open_loader(std::unique_ptr<RowSource> data, LoaderOptions options,
                                    const ReaderSet& set) {
  require(data != nullptr, "open_loader: the data source is null");
  if (set.me < 0) return nullptr;
  options.fields = set.readers[static_cast<std::size_t>(set.me)].fields;
  if (!data->same_everywhere() && set.readers.size() > 1) {
    data = std::make_unique<SharedSamples>(std::move(data), options, set);
    options.prefetch = 0;  // the first reader reads ahead in whole_, the others wait for messages
  }
  return std::make_unique<Loader>(std::move(data), std::move(options));
}

}  // namespace hetu
