#include "executor/job/weights.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"

namespace hetu {
namespace {

// Returns the shape of a parameter or buffer. Throws if no worker holds a tensor of that name.
Shape shape_of(const Graph& graph, const std::string& name, const char* asked) {
  std::string known;
  const auto add = [&](const std::string& one) { known += (known.empty() ? "" : ", ") + one; };
  for (const Parameter& p : graph.parameters) {
    if (p.role != Parameter::Role::Weight) continue;  // a K-FAC factor: state of its weight
    add(p.name);
    if (p.name != name) continue;
    require(!p.served,
            "{}: '{}' is a table on parameter servers, and no worker holds all of its rows; save a "
            "checkpoint to read it",
            asked, name);
    return graph.values[p.value].type.shape;
  }
  for (const StateBuffer& b : graph.buffers) {
    add(b.name);
    if (b.name == name) return graph.values[b.value].type.shape;
  }
  fail(Code::InvalidArgument, "{}: the model has no '{}'; it has: {}", asked, name, known);
}

std::vector<StateTensor> chosen(std::vector<StateTensor> all,
                                const std::vector<std::string>& names) {
  const auto unwanted = [&](const StateTensor& t) {
    return !names.empty() && std::find(names.begin(), names.end(), t.name) == names.end();
  };
  all.erase(std::remove_if(all.begin(), all.end(), unwanted), all.end());
  return all;
}

void check_step(const Trainer& trainer) {
  require(trainer.step() > 0, "gradients: no step has been run yet");
  trainer.check_drained("reading gradients");
}

}  // namespace

TensorsByName weights_of(Trainer& trainer, const std::vector<std::string>& names,
                         comm::Transport& transport) {
  for (const std::string& name : names) shape_of(trainer.graph(), name, "weights");
  trainer.check_drained("reading weights");
  TensorsByName out;
  trainer.with_mean_buffers([&] {
    std::vector<StateTensor> mine;
    for (const SavePart& part : trainer.save_parts())
      for (const StateTensor& t : part.tensors)
        if (t.state.empty() && !t.blocks) mine.push_back(t);
    out = gather_tensors(chosen(std::move(mine), names), names, transport);
  });
  return out;
}

TensorsByName gradients_of(const Trainer& trainer, const std::vector<std::string>& names,
                           comm::Transport& transport) {
  for (const std::string& name : names) shape_of(trainer.graph(), name, "gradients");
  const auto whole = trainer.lock();
  check_step(trainer);
  TensorsByName out = gather_tensors(chosen(trainer.gradient_parts(), names), names, transport);
  // With float16, the stored sums are multiplied by the loss scale.
  const auto scale = static_cast<float>(trainer.gradient_scale());
  for (auto& [name, tensor] : out)
    for (float& value : tensor.values) value /= scale;
  return out;
}

std::map<std::string, double> gradient_norms_of(const Trainer& trainer,
                                                comm::Transport& transport) {
  check_step(trainer);
  std::map<std::string, double> out = gather_norms(trainer.gradient_parts(), transport);
  for (auto& [name, norm] : out) norm /= trainer.gradient_scale();
  return out;
}

void set_weights(const std::vector<Trainer*>& trainers, const TensorsByName& values,
                 comm::Transport& transport) {
  const Trainer& first = *trainers.front();
  const auto whole = first.lock();
  first.check_drained("set_weights");
  std::string given;
  for (const auto& [name, tensor] : values) {
    const Shape shape = shape_of(first.graph(), name, "set_weights");
    require(shape == tensor.shape, "set_weights: '{}' has shape {}, got {}", name, to_string(shape),
            to_string(tensor.shape));
    // Workers compare checksums, not values, to find out whether all were given the same.
    const std::uint32_t sum = crc32c(tensor.values.data(), tensor.values.size() * sizeof(float));
    given += fmt::format("{}'{}' ({})", given.empty() ? "" : ", ", name, crc_text(sum));
  }
  check_alike(given.empty() ? "nothing" : given, "set_weights", transport);
  for (const Trainer* trainer : trainers) {
    for (const StateTensor& t : trainer->state()) {
      const auto at = values.find(t.name);
      if (t.state.empty() && at != values.end()) t.values.write(at->second.values.data());
    }
  }
}

}  // namespace hetu
