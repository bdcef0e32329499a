#include "executor/job/weights.h"

#include <algorithm>
#include <initializer_list>

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

void check_step(const Job& job) {
  require(job.step() > 0, "gradients: no step has been run yet");
  job.check_drained("reading gradients");
}

}  // namespace

TensorsByName weights_of(Job& job, const std::vector<std::string>& names) {
  for (const std::string& name : names) shape_of(job.plan().graph, name, "weights");
  job.check_drained("reading weights");
  TensorsByName out;
  job.with_mean_buffers([&] {
    std::vector<StateTensor> mine;
    for (const SavePart& part : job.save_parts())
      for (const StateTensor& t : part.tensors)
        if (t.state.empty() && !t.blocks) mine.push_back(t);
    out = gather_tensors(chosen(std::move(mine), names), names, job.transport());
  });
  return out;
}

TensorsByName gradients_of(const Job& job, const std::vector<std::string>& names) {
  for (const std::string& name : names) shape_of(job.plan().graph, name, "gradients");
  const auto whole = job.lock();
  check_step(job);
  TensorsByName out = gather_tensors(chosen(job.gradient_parts(), names), names, job.transport());
  // With float16, the stored sums are multiplied by the loss scale.
  const auto scale = static_cast<float>(job.gradient_scale());
  for (auto& [name, tensor] : out)
    for (float& value : tensor.values) value /= scale;
  return out;
}

NamedValues<double> gradient_norms_of(const Job& job) {
  check_step(job);
  NamedValues<double> out;
  for (const auto& [name, norm] : gather_norms(job.gradient_parts(), job.transport()))
    out[name] = norm / job.gradient_scale();
  return out;
}

void set_weights(Job& job, const TensorsByName& values) {
  const auto whole = job.lock();
  job.check_drained("set_weights");
  std::string given;
  for (const auto& [name, tensor] : values) {
    const Shape shape = shape_of(job.plan().graph, name, "set_weights");
    require(shape == tensor.shape, "set_weights: '{}' has shape {}, got {}", name, to_string(shape),
            to_string(tensor.shape));
    // Workers compare checksums, not values, to find out whether all were given the same.
    const std::uint32_t sum = crc32c(tensor.values.data(), tensor.values.size() * sizeof(float));
    given += fmt::format("{}'{}' ({})", given.empty() ? "" : ", ", name, crc_text(sum));
  }
  check_alike(given.empty() ? "nothing" : given, "set_weights", job.transport());
  for (const Job* one : std::initializer_list<const Job*>{&job, job.twin()}) {
    if (one == nullptr) continue;
    for (const StateTensor& t : one->state()) {
      const auto at = values.find(t.name);
      if (t.state.empty() && at != values.end()) t.values.write(at->second.values.data());
    }
  }
}

}  // namespace hetu
