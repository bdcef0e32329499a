#include "executor/predict/saved_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text_file.h"
#include "executor/state/model_folder.h"
#include "graph/op_def.h"
#include "graph/passes/dead.h"
#include "net/transport/inproc.h"
#include "ops/registry.h"

namespace hetu {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kModel = "model";  // a key of run_json
constexpr const char* kVariants = "variants";

// A graph as text, and the entry of the manifest that names its file.
struct GraphFile {
  SavePart part;
  json entry;
};

GraphFile file_of(const Graph& graph, const std::string& name) {
  GraphFile file = {{name, {}, print_graph(graph)}, {}};
  const std::string& text = file.part.text;
  file.entry = {{"graph", name}, {"crc32c", crc_text(crc32c(text.data(), text.size()))}};
  return file;
}

// Returns the shapes of the parameters and buffers of a graph, by name.
std::map<std::string, Shape> weights_of(const Graph& graph) {
  std::map<std::string, Shape> shapes;
  for (const Parameter& p : graph.parameters) shapes[p.name] = graph.values[p.value].type.shape;
  for (const StateBuffer& b : graph.buffers) shapes[b.name] = graph.values[b.value].type.shape;
  return shapes;
}

// Returns the weight of a checkpoint for the parameter `name` of a graph. Throws Io unless the
// checkpoint has it in this shape.
const CheckpointTensor& weight_for(const Manifest& manifest, const std::string& name,
                                   const Shape& shape) {
  const CheckpointTensor* const found = manifest.find(name, "");
  if (found == nullptr)
    fail(Code::Io, "{}: has no '{}'; the checkpoint belongs to another model", manifest.folder,
         name);
  if (found->shape != shape)
    fail(Code::Io, "{}: '{}' is {}, but the model expects {}; nothing is saved", manifest.folder,
         name, to_string(found->shape), to_string(shape));
  return *found;
}

// Adds the graphs to the parts, and saves everything as one model.
void save_graphs(SavePlace place, std::int64_t step, const Graph& model,
                 const std::map<std::string, Graph>& variants, std::int64_t rows,
                 std::vector<SavePart> parts, comm::Transport& transport) {
  std::vector<SavePart> graphs;
  const auto add = [&graphs](const Graph& graph, const std::string& name) {
    GraphFile file = file_of(graph, name);
    graphs.push_back(std::move(file.part));
    return std::move(file.entry);
  };
  json run = json::parse(bounded_json(weights_only_run("a saved model"), "a manifest"));
  run[kModel] = add(model, kModelGraph);
  run[kModel]["version"] = kVersion;
  run[kModel]["rows"] = rows;
  for (const auto& [name, variant] : variants)
    run[kModel][kVariants][name] = add(variant, name + ".graph.txt");
  // The graphs are the same on all workers. Worker 0 writes them.
  if (transport.worker() == 0)
    parts.insert(parts.end(), std::make_move_iterator(graphs.begin()),
                 std::make_move_iterator(graphs.end()));
  place.model_file = kModelGraph;
  save_checkpoint(place, step, run.dump(), parts, transport);
}

// Reads a graph that the manifest names, and compares its checksum. Throws Io, and json::exception
// if the entry is malformed.
Graph graph_of(const Manifest& weights, const json& entry) {
  const std::string path =
      (std::filesystem::path(weights.folder) / entry.at("graph").get<std::string>()).string();
  const std::string text = read_text(path);
  const std::string found = crc_text(crc32c(text.data(), text.size())), stated = entry.at("crc32c");
  if (found != stated)
    fail(Code::Io, "{}: its checksum is {}, the manifest states {}; the file is damaged", path,
         found, stated);
  Graph graph = parse_graph(text);
  check_types(op_set(), graph);
  return graph;
}

// Reports the fetches `names` under the names `outputs`.
void rename_outputs(Graph& model, const std::vector<std::string>& names,
                    const std::vector<std::string>& outputs) {
  const std::vector<ValueId> values = fetched_values(model, names);
  require(outputs.size() == values.size(), "{} names are given for {} outputs", outputs.size(),
          values.size());
  model.fetches.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& name = outputs[i];
    require(!name.empty(), "output {} has an empty name", i);
    require(std::none_of(model.fetches.begin(), model.fetches.end(),
                         [&](const auto& fetch) { return fetch.first == name; }),
            "two outputs are called '{}'", name);
    model.fetches.push_back({name, values[i]});
  }
}

}  // namespace

Graph model_of(const Graph& graph, const std::vector<std::string>& names,
               const std::vector<std::string>& outputs) {
  Graph model = part_for(graph, names);
  if (!outputs.empty()) rename_outputs(model, names, outputs);
  for (const auto& [name, value] : model.fetches) {
    require(is_per_sample(model.values[value].type),
            "a saved model returns values per sample, but '{}' is {}, without the batch axis", name,
            to_string(model.values[value].type));
    const std::vector<char> needed = needed_for(model, {value});
    for (std::size_t n = 0; n < model.nodes.size(); ++n)
      require(needed[n] == 0 || model.nodes[n].op != "step_sum",
              "a saved model returns values per sample, but '{}' depends on '{}', a sum over a "
              "whole step",
              name, model.nodes[n].name);
  }
  for (Parameter& p : model.parameters) {  // its weights come from the file
    p.init = {};
    p.start = nullptr;
    p.served = false;
  }
  for (StateBuffer& b : model.buffers) b.init = {};
  return model;
}

void save_model(const SavePlace& place, std::int64_t step, const Graph& model, std::int64_t rows,
                std::vector<SavePart> parts, comm::Transport& transport) {
  const std::map<std::string, Shape> wanted = weights_of(model);
  for (SavePart& part : parts)
    std::erase_if(part.tensors, [&](const StateTensor& t) {
      return !t.state.empty() || wanted.count(t.name) == 0;
    });
  std::erase_if(parts, [](const SavePart& part) { return part.tensors.empty(); });
  save_graphs(place, step, model, {}, rows, parts, transport);
}

void save_model(const std::string& folder, const Graph& model, std::int64_t rows,
                const std::string& checkpoint, const std::map<std::string, Graph>& variants) {
  const Manifest manifest = read_manifest(checkpoint);
  SavePart part{"stage-0.safetensors", {}, {}};
  std::vector<std::vector<float>> room;
  // Everything is checked and read before the folder is touched, because a save replaces the model
  // there.
  std::map<std::string, Shape> wanted = weights_of(model);
  for (const auto& [_, variant] : variants) {
    for (const auto& [name, shape] : weights_of(variant)) {
      weight_for(manifest, name, shape);
      wanted.emplace(name, shape);
    }
  }
  for (const auto& [name, shape] : wanted) {
    const CheckpointTensor& found = weight_for(manifest, name, shape);
    std::vector<float>& values = room.emplace_back(element_count(shape));
    read_tensor(manifest, found, values.data());
    part.tensors.push_back({name, "", shape, host_span(values.data(), element_count(shape))});
  }
  const auto alone = comm::make_inproc(1);
  save_graphs({folder}, manifest.step, model, variants, rows, {std::move(part)}, *alone[0]);
}

SavedModel read_model(const std::string& folder) {
  SavedModel model;
  model.weights = read_manifest(folder);
  const json run = json::parse(bounded_json(model.weights.run_json, model.weights.folder));
  if (!run.contains(kModel))
    fail(Code::Io,
         "{}: this checkpoint has no graph; save the model with job.save(folder), which writes the "
         "graph, too",
         model.weights.folder);
  try {
    const json& said = run.at(kModel);
    const int version = said.at("version");
    if (version != kVersion)
      fail(Code::Io, "{}: the model has version {}, but this build reads version {}; save it again",
           model.weights.folder, version, kVersion);
    model.rows = said.at("rows");
    if (model.rows < 1)
      fail(Code::Io, "{}: the number of rows is {}, but must be at least 1; the file is damaged",
           model.weights.folder, model.rows);
    model.graph = graph_of(model.weights, said);
    if (said.contains(kVariants)) {
      for (const auto& [name, entry] : said[kVariants].items())
        model.variants.emplace(name, graph_of(model.weights, entry));
    }
  } catch (const json::exception& e) {
    fail(Code::Io, "{}: the description of the model cannot be read: {}", model.weights.folder,
         e.what());
  }
  return model;
}

}  // namespace hetu
