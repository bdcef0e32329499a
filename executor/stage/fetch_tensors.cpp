// Fetched tensors of a step. Summed tensors are added with the step's scalars. Per-sample tensors
// are gathered as chunks, each behind a header that states its fetch and its position in the data.
#include "executor/stage/fetch_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

// Header of a micro-batch's bytes of one tensor.
struct Piece {
  std::int64_t fetch = 0;  // index into the graph's fetches
  std::int64_t place = 0;  // number of the micro-batch over all pipelines
  std::int64_t bytes = 0;
};

template <class T>
void add(const std::byte* from, std::vector<double>& to, std::size_t at, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, from + i * std::int64_t{sizeof(T)}, sizeof(T));
    to[at + static_cast<std::size_t>(i)] += static_cast<double>(value);
  }
}

template <class T>
std::vector<std::byte> as_bytes(const double* from, std::int64_t elements) {
  std::vector<T> values(from, from + elements);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + elements * std::int64_t{sizeof(T)}};
}

}  // namespace

bool FetchTensors::is_tensor(std::size_t fetch) const {
  const Value& value = graph_.values[graph_.fetches[fetch].second];
  return context_.needs(value.producer) && value.type != TensorType{};
}

// Calls visit(fetch of the graph, stage, fetch of the stage) for each tensor that a stage of this
// worker has.
template <class Visit>
void FetchTensors::each(bool per_sample, const Visit& visit) const {
  for (std::size_t at = 0; at < graph_.fetches.size(); ++at) {
    if (!is_tensor(at)) continue;
    for (const auto& stage : stages_) {
      if (!stage) continue;
      const std::vector<StageFetch>& fetches = stage->plan().fetches;
      for (std::size_t f = 0; f < fetches.size(); ++f)
        if (fetches[f].name == graph_.fetches[at].first && fetches[f].per_sample == per_sample)
          visit(at, *stage, f);
    }
  }
}

std::vector<double> FetchTensors::own_sums() const {
  std::map<std::size_t, std::size_t> begin;
  std::size_t all = 0;
  for (std::size_t at = 0; at < graph_.fetches.size(); ++at) {
    const TensorType& type = graph_.values[graph_.fetches[at].second].type;
    if (!is_tensor(at) || is_per_sample(type)) continue;
    begin[at] = all;
    all += static_cast<std::size_t>(element_count(type.shape));
  }
  std::vector<double> sums(all, 0);
  each(false, [&](std::size_t at, const Stage& stage, std::size_t f) {
    const TensorType& type = graph_.values[graph_.fetches[at].second].type;
    const std::int64_t elements = element_count(type.shape);
    for (int m = 0; m < options_.micro_batches; ++m) {
      if (!stage.runs_here(m)) continue;
      const auto how = type.dtype == DType::Int32 ? add<std::int32_t> : add<float>;
      how(stage.fetched_bytes(f, m), sums, begin[at], elements);
    }
  });
  return sums;
}

// Returns this worker's micro-batches of per-sample tensors, each behind its header.
std::vector<std::byte> FetchTensors::own_pieces() const {
  std::vector<std::byte> pieces;
  const int before = options_.pipelines > 1 ? options_.first_micro() : 0;
  each(true, [&](std::size_t at, const Stage& stage, std::size_t f) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      if (!stage.runs_here(m)) continue;
      const Piece piece{static_cast<std::int64_t>(at), before + m, stage.bytes_fetched(f, m)};
      const auto* const head = reinterpret_cast<const std::byte*>(&piece);
      pieces.insert(pieces.end(), head, head + sizeof(Piece));
      const std::byte* const data = stage.fetched_bytes(f, m);
      pieces.insert(pieces.end(), data, data + piece.bytes);
    }
  });
  return pieces;
}

std::vector<std::vector<std::byte>> FetchTensors::gather(const std::vector<double>& sums,
                                                         comm::Transport& transport,
                                                         int step) const {
  std::vector<std::vector<std::byte>> tensors(graph_.fetches.size());
  bool any = false;
  const double* sum = sums.data();
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    const TensorType& type = graph_.values[graph_.fetches[at].second].type;
    if (!is_tensor(at)) continue;
    if (is_per_sample(type)) {
      any = true;
      continue;
    }
    const std::int64_t elements = element_count(type.shape);
    tensors[at] = type.dtype == DType::Int32 ? as_bytes<std::int32_t>(sum, elements)
                                             : as_bytes<float>(sum, elements);
    sum += elements;
  }
  if (!any) return tensors;
  const auto what = [&] { return fmt::format("the fetches of step {}", step); };
  const std::vector<std::byte> mine = own_pieces();
  const std::vector<std::byte> all =
      comm::gather_bytes(transport, mine.data(), mine.size(),
                         {comm::make_tag(kFetchTag, 0, 0, 0, step), what})
          .all;
  // The map sorts the chunks by fetch, pipeline and micro-batch.
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<const std::byte*, std::int64_t>> found;
  for (std::size_t i = 0; i < all.size();) {
    Piece piece;
    std::memcpy(&piece, all.data() + i, sizeof(Piece));
    i += sizeof(Piece);
    found[{piece.fetch, piece.place}] = {all.data() + i, piece.bytes};
    i += static_cast<std::size_t>(piece.bytes);
  }
  for (const auto& [key, data] : found) {
    std::vector<std::byte>& tensor = tensors[static_cast<std::size_t>(key.first)];
    tensor.insert(tensor.end(), data.first, data.first + data.second);
  }
  return tensors;
}

}  // namespace hetu
