// Descriptors of the emulated cuDNN's graph API: the attributes of each kind, and when they may be
// set.
// Source: NVIDIA, cuDNN 9 API reference, cudnn_graph library, "Backend Descriptor Types". The
// statuses are those of the library 9.19, where it can be asked without a GPU.
#pragma once
#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hetu::emulator {

/// A status with a line for stderr. The line is empty where a caller is expected to try.
struct Refusal : std::runtime_error {
  cudnnStatus_t status;
  explicit Refusal(cudnnStatus_t s, const std::string& why = {})
      : std::runtime_error(why), status(s) {}
};

struct DescriptorKind;

struct Descriptor {
  struct Value {
    std::int64_t count = 0;
    std::vector<std::byte> bytes;
    std::vector<Descriptor> held;  ///< copies of descriptors
  };

  const DescriptorKind* kind = nullptr;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values;

  bool has(cudnnBackendAttributeName_t name) const { return values.count(name) != 0; }
  /// Returns the values as type T, which must be the attribute's type. Throws std::out_of_range if
  /// it is not set.
  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const Value& v = values.at(name);
    const auto* const first = reinterpret_cast<const T*>(v.bytes.data());
    return {first, first + v.count};
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name) const {
    T value;
    std::memcpy(&value, values.at(name).bytes.data(), sizeof value);
    return value;
  }
  const Descriptor& held(cudnnBackendAttributeName_t name) const {
    return values.at(name).held.at(0);
  }
  template <class T>
  void put(cudnnBackendAttributeName_t name, const std::vector<T>& those) {
    const auto* const first = reinterpret_cast<const std::byte*>(those.data());
    values[name] = {
        static_cast<std::int64_t>(those.size()), {first, first + those.size() * sizeof(T)}, {}};
  }
  void put(cudnnBackendAttributeName_t name, std::vector<Descriptor> those) {
    values[name] = {static_cast<std::int64_t>(those.size()), {}, std::move(those)};
  }
};

enum class Need : std::uint8_t { Required, Optional, Answer };  ///< Answer: only read

struct Attribute {
  cudnnBackendAttributeName_t name;
  const char* words;
  cudnnBackendAttributeType_t type;
  std::int64_t most;  ///< maximum number of elements
  Need need = Need::Required;
  cudnnBackendDescriptorType_t holds =
      CUDNN_BACKEND_TENSOR_DESCRIPTOR;  ///< kind held; operations count as one
};

struct DescriptorKind {
  cudnnBackendDescriptorType_t type;
  const char* words;
  std::vector<Attribute> attributes;
  /// Checks a descriptor whose required attributes are set, and adds its answers. Throws Refusal.
  void (*finish)(Descriptor&);
};

/// Returns a kind. Throws Refusal for a kind that the stand-in doesn't support.
const DescriptorKind& kind_of(cudnnBackendDescriptorType_t type);

/// Creates, destroys or looks up a descriptor by the caller's handle. Each throws Refusal, also for
/// a handle that doesn't exist (any more).
cudnnBackendDescriptor_t make_descriptor(cudnnBackendDescriptorType_t type);
void destroy_descriptor(cudnnBackendDescriptor_t descriptor);
Descriptor& known_descriptor(cudnnBackendDescriptor_t descriptor);

void set_attribute(Descriptor& of, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t count, const void* from);
void get_attribute(const Descriptor& of, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t most, std::int64_t* count,
                   void* to);
void finalize(Descriptor& descriptor);

/// Returns true if this handle was created and not destroyed.
bool is_handle(cudnnHandle_t handle);

}  // namespace hetu::emulator
