// The attributes of each kind of descriptor, and the checks before it is finalized. The limits are
// those of Hetu's use: anything beyond is refused with a message.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/emulator/cudnn_convolution.h"
#include "tests/emulator/cudnn_descriptors.h"
#include "tests/emulator/cudnn_engines.h"

namespace hetu::emulator {
namespace {

using Numbers = std::vector<std::int64_t>;

void want(bool holds, const Descriptor& of, const char* what) {
  if (!holds)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: it must have {}", of.kind->words, what));
}
void want_known(bool holds, const Descriptor& of, const char* else_what) {
  if (!holds)
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("{}: {} is not known here", of.kind->words, else_what));
}
bool all_at_least(const Numbers& numbers, std::int64_t least) {
  return std::all_of(numbers.begin(), numbers.end(), [&](auto n) { return n >= least; });
}

void finish_tensor(Descriptor& d) {
  const auto type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  want_known(bytes_of(type) != 0, d, "another data type than float, half and bfloat16");
  const auto sizes = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto steps = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  want(sizes.size() == steps.size(), d, "as many strides as dimensions");
  want(all_at_least(sizes, 1) && all_at_least(steps, 1), d, "dimensions and strides of 1 or more");
  const auto alignment = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  want(alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(alignment)) &&
           alignment >= bytes_of(type),
       d, "an alignment that is a power of two, and an element's or more");
}

void finish_windows(Descriptor& d) {
  const auto rank = d.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const auto name :
       {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
        CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
    const auto numbers = d.all<std::int64_t>(name);
    want(static_cast<std::int64_t>(numbers.size()) == rank, d,
         "a number for each spatial dimension");
    const bool pads =
        name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS || name == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS;
    want(all_at_least(numbers, pads ? 0 : 1), d,
         "strides and dilations of 1, paddings of 0 or more");
  }
  want_known(rank == 2, d, "another number of spatial dimensions than two");
  want_known(d.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT, d,
             "another type of sums than float");
  want_known(
      d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION, d,
      "another mode than cross-correlation");
}

void finish_operation(Descriptor& d) { static_cast<void>(Convolution(d)); }

void finish_graph(Descriptor& d) {
  want(is_handle(d.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)), d,
       "a handle that is alive");
}

void finish_heuristics(Descriptor& d) {
  d.put(CUDNN_ATTR_ENGINEHEUR_RESULTS,
        configs_of(d.held(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH),
                   d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)));
}

void refuse(Descriptor& d) { want_known(false, d, "one that no heuristics gave"); }

void finish_plan(Descriptor& d) {
  want(is_handle(d.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)), d,
       "a handle that is alive");
  const std::int64_t room = workspace_of(d.held(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  d.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, std::vector{room});
}

void finish_pack(Descriptor& d) {
  auto names = d.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  want(names.size() == d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(), d,
       "as many pointers as names");
  std::sort(names.begin(), names.end());
  want(std::adjacent_find(names.begin(), names.end()) == names.end(), d, "each tensor once");
}

constexpr std::int64_t kMostAxes = 8, kMostTensors = 64;

DescriptorKind operation(cudnnBackendDescriptorType_t type, const char* words,
                         const cudnnBackendAttributeName_t (&names)[6]) {
  const auto tensor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  return {type,
          words,
          {{names[0], "x", tensor, 1},
           {names[1], "w", tensor, 1},
           {names[2], "y", tensor, 1},
           {names[3], "the convolution", tensor, 1, Need::Required,
            CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
           {names[4], "alpha", CUDNN_TYPE_FLOAT, 1},
           {names[5], "beta", CUDNN_TYPE_FLOAT, 1}},
          finish_operation};
}

std::vector<DescriptorKind> kinds() {  // NOLINT(readability-function-size): a table
  const auto number = CUDNN_TYPE_INT64;
  const auto descriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const Need required = Need::Required, answer = Need::Answer;
  return {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       "tensor",
       {{CUDNN_ATTR_TENSOR_UNIQUE_ID, "the unique id", number, 1},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, "the data type", CUDNN_TYPE_DATA_TYPE, 1},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, "dimensions", number, kMostAxes},
        {CUDNN_ATTR_TENSOR_STRIDES, "strides", number, kMostAxes},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, "the alignment", number, 1}},
       finish_tensor},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       "convolution",
       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, "the type of sums", CUDNN_TYPE_DATA_TYPE, 1},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, "the mode", CUDNN_TYPE_CONVOLUTION_MODE, 1},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, "spatial dimensions", number, 1},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, "paddings before", number, kMostAxes},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, "paddings after", number, kMostAxes},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, "strides", number, kMostAxes},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, "dilations", number, kMostAxes}},
       finish_windows},
      operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "forward convolution",
                Convolution::kForward),
      operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                "convolution back to data", Convolution::kData),
      operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                "convolution back to a filter", Convolution::kFilter),
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       "operation graph",
       {{CUDNN_ATTR_OPERATIONGRAPH_OPS, "its one operation", descriptor, 1, required,
         CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, "the handle", CUDNN_TYPE_HANDLE, 1}},
       finish_graph},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       "heuristics",
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, "the graph", descriptor, 1, required,
         CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
        {CUDNN_ATTR_ENGINEHEUR_MODE, "the mode", CUDNN_TYPE_HEUR_MODE, 1},
        {CUDNN_ATTR_ENGINEHEUR_RESULTS, "results", descriptor, 0, answer,
         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}},
       finish_heuristics},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
       "engine",
       {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, "its graph", descriptor, 0, answer,
         CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, "its index", number, 0, answer},
        {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, "notes", CUDNN_TYPE_NUMERICAL_NOTE, 0, answer}},
       refuse},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
       "engine's configuration",
       {{CUDNN_ATTR_ENGINECFG_ENGINE, "the engine", descriptor, 0, answer,
         CUDNN_BACKEND_ENGINE_DESCRIPTOR}},
       refuse},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       "plan",
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, "the handle", CUDNN_TYPE_HANDLE, 1},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, "the engine's configuration", descriptor, 1,
         required, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
        {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, "the size of its workspace", number, 0, answer}},
       finish_plan},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       "variant pack",
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, "unique ids", number, kMostTensors},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, "pointers", CUDNN_TYPE_VOID_PTR, kMostTensors},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, "the workspace", CUDNN_TYPE_VOID_PTR, 1,
         Need::Optional}},
       finish_pack},
  };
}

}  // namespace

const DescriptorKind& kind_of(cudnnBackendDescriptorType_t type) {
  static const auto* const kAll =
      new std::vector<DescriptorKind>(kinds());  // until the process ends
  const auto found =
      std::find_if(kAll->begin(), kAll->end(), [&](auto& kind) { return kind.type == type; });
  if (found == kAll->end())
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("descriptors of kind {} are not known", static_cast<int>(type)));
  return *found;
}

}  // namespace hetu::emulator
