#include "tests/emulator/cudnn_descriptors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace hetu::emulator {
namespace {

std::mutex mutex;  // guards `descriptors`
auto& descriptors() {
  static auto* const all = new std::map<cudnnBackendDescriptor_t, std::unique_ptr<Descriptor>>;
  return *all;  // until the process ends
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

const Attribute& attribute_of(const Descriptor& d, cudnnBackendAttributeName_t name) {
  const auto& all = d.kind->attributes;
  const auto found = std::find_if(all.begin(), all.end(), [&](auto& a) { return a.name == name; });
  if (found == all.end())
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: attribute {} is not known of it",
                                                      d.kind->words, static_cast<int>(name)));
  return *found;
}

void want_type(const Descriptor& d, const Attribute& a, cudnnBackendAttributeType_t type) {
  if (type != a.type)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                  fmt::format("{}: {} is of type {}, not {}", d.kind->words, a.words,
                              static_cast<int>(a.type), static_cast<int>(type)));
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

Descriptor copy_of(const Descriptor& d, const Attribute& a, cudnnBackendDescriptor_t from) {
  if (from == nullptr)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} is null", d.kind->words, a.words));
  const Descriptor& there = known_descriptor(from);
  const bool fits =
      there.kind->type == a.holds || (is_operation(a.holds) && is_operation(there.kind->type));
  if (!fits)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} is a descriptor of another kind, {}",
                                                      d.kind->words, a.words, there.kind->words));
  if (!there.finalized)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                  fmt::format("{}: {} is not finalized", d.kind->words, a.words));
  return there;
}

}  // namespace

cudnnBackendDescriptor_t make_descriptor(cudnnBackendDescriptorType_t type) {
  auto made = std::make_unique<Descriptor>();
  made->kind = &kind_of(type);
  const std::lock_guard lock(mutex);
  const cudnnBackendDescriptor_t name = made.get();
  descriptors()[name] = std::move(made);
  return name;
}

void destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  known_descriptor(descriptor);
  const std::lock_guard lock(mutex);
  descriptors().erase(descriptor);
}

Descriptor& known_descriptor(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is null");
  const std::lock_guard lock(mutex);
  const auto found = descriptors().find(descriptor);
  if (found == descriptors().end())
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{} is no descriptor", descriptor));
  return *found->second;
}

void set_attribute(Descriptor& of, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t count, const void* from) {
  if (of.finalized)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: it is finalized", of.kind->words));
  const Attribute& a = attribute_of(of, name);
  if (a.need == Need::Answer)
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("{}: {} is read, not set", of.kind->words, a.words));
  want_type(of, a, type);
  if (count < 1 || count > a.most || from == nullptr)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} has 1 to {} elements, not {}",
                                                      of.kind->words, a.words, a.most, count));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::vector<Descriptor> held;
    for (std::int64_t i = 0; i < count; ++i)
      held.push_back(copy_of(of, a, static_cast<const cudnnBackendDescriptor_t*>(from)[i]));
    of.put(name, std::move(held));
    return;
  }
  const auto* const first = static_cast<const std::byte*>(from);
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(type)) * count;
  of.values[name] = {count, {first, first + bytes}, {}};
}

void get_attribute(const Descriptor& of, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t most, std::int64_t* count,
                   void* to) {
  if (!of.finalized)
    throw Refusal(CUDNN_STATUS_NOT_INITIALIZED,
                  fmt::format("{}: it is not finalized", of.kind->words));
  const Attribute& a = attribute_of(of, name);
  want_type(of, a, type);
  const auto found = of.values.find(name);
  static const Descriptor::Value kNone;
  const Descriptor::Value& value = found == of.values.end() ? kNone : found->second;
  const bool asks = most == 0 || to == nullptr;  // only the number is asked for
  const std::int64_t given = asks ? value.count : std::min(most, value.count);
  // The library counts results that it then omits.
  const bool counts_more = asks && given > 0 && name == CUDNN_ATTR_ENGINEHEUR_RESULTS;
  if (count != nullptr) *count = counts_more ? given + 1 : given;
  if (asks) return;
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(to, value.bytes.data(), static_cast<std::size_t>(given) * bytes_of(type));
    return;
  }
  for (std::int64_t i = 0; i < given; ++i) {
    Descriptor& there = known_descriptor(static_cast<cudnnBackendDescriptor_t*>(to)[i]);
    const Descriptor& one = value.held[static_cast<std::size_t>(i)];
    if (there.kind != one.kind || there.finalized)
      throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} wants a new descriptor of kind {}",
                                                        of.kind->words, a.words, one.kind->words));
    there = one;
  }
}

void finalize(Descriptor& descriptor) {
  const DescriptorKind& kind = *descriptor.kind;
  if (descriptor.finalized)
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: it is finalized twice", kind.words));
  for (const Attribute& a : kind.attributes)
    if (a.need == Need::Required && !descriptor.has(a.name))
      throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: not set: {}", kind.words, a.words));
  kind.finish(descriptor);
  descriptor.finalized = true;
}

}  // namespace hetu::emulator
