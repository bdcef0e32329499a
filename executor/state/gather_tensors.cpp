#include "executor/state/gather_tensors.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

using nlohmann::json;

comm::Exchange exchange(int round, const char* what) {
  return {comm::make_tag(kLookTag, round, 0, 0, 0), what};
}

// Formats the requested names for the comparison between workers.
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "all" : text;
}

}  // namespace

void check_alike(const std::string& mine, const std::string& what, comm::Transport& transport) {
  const std::vector<std::string> texts =
      gather_texts(mine, transport, exchange(0, "the arguments of all workers"));
  for (std::size_t w = 1; w < texts.size(); ++w)
    require(
        texts[w] == texts[0],
        "{}: every worker must pass the same arguments; worker 0 passed {}, worker {} passed {}",
        what, texts[0], w, texts[w]);
}

TensorsByName gather_tensors(const std::vector<StateTensor>& mine,
                             const std::vector<std::string>& names, comm::Transport& transport) {
  check_alike(listed(names), "reading tensors", transport);
  json rows = json::array();
  std::vector<float> own, room;
  for (const StateTensor& t : mine) {
    rows.push_back({t.name, t.shape});
    const float* const data = t.values.host(room);
    own.insert(own.end(), data, data + t.values.elements);
  }
  std::vector<std::size_t> bytes;
  TensorsByName out;
  std::vector<HostTensor*> order;
  for (const std::string& text : gather_texts(rows.dump(), transport, exchange(1, "names"))) {
    bytes.push_back(0);
    for (const json& row : json::parse(bounded_json(text, "gathered tensors"))) {
      HostTensor& tensor = out[row.at(0)];
      tensor.shape = row.at(1).get<Shape>();
      bytes.back() += static_cast<std::size_t>(element_count(tensor.shape)) * sizeof(float);
      order.push_back(&tensor);
    }
  }
  std::size_t total = 0;
  for (const std::size_t of_one : bytes) total += of_one;
  std::vector<float> all(total / sizeof(float));
  comm::all_gather_bytes(transport, comm::everyone(transport), bytes, own.data(), all.data(),
                         exchange(2, "tensors"));
  // Values arrive in the order of workers, and of each worker's tensors.
  auto at = all.begin();
  for (HostTensor* tensor : order) {
    const auto end = at + static_cast<std::ptrdiff_t>(element_count(tensor->shape));
    tensor->values.assign(at, end);
    at = end;
  }
  return out;
}

std::map<std::string, double> gather_norms(const std::vector<StateTensor>& mine,
                                           comm::Transport& transport) {
  std::map<std::string, double> out;
  std::vector<double> own;
  json names = json::array();
  std::vector<float> room;
  for (const StateTensor& t : mine) {
    double squares = 0;
    const float* const data = t.values.host(room);
    for (std::int64_t i = 0; i < t.values.elements; ++i)
      squares += static_cast<double>(data[i]) * static_cast<double>(data[i]);
    own.push_back(std::sqrt(squares));
    names.push_back(t.name);
  }
  std::vector<std::string> order;
  std::vector<std::size_t> bytes;
  for (const std::string& text : gather_texts(names.dump(), transport, exchange(1, "names"))) {
    const auto of_one =
        json::parse(bounded_json(text, "gathered tensors")).get<std::vector<std::string>>();
    order.insert(order.end(), of_one.begin(), of_one.end());
    bytes.push_back(of_one.size() * sizeof(double));
  }
  std::vector<double> all(order.size());
  comm::all_gather_bytes(transport, comm::everyone(transport), bytes, own.data(), all.data(),
                         exchange(3, "norms"));
  for (std::size_t i = 0; i < order.size(); ++i) out[order[i]] = all[i];
  return out;
}

}  // namespace hetu
