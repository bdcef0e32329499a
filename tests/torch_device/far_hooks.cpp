// The parts of the simulated accelerator that PyTorch finds by registration: current device,
// streams and events (the guard), pinned memory and generators (the hooks).
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tests/torch_device/far_generator.h"
#include "tests/torch_device/far_runtime.h"

namespace far_device {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Device device_of_index(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream stream_for_torch(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, device_of_index(stream.device()), stream.number());
}

Stream& own_stream(const c10::Stream& stream) {
  return stream_of(stream.device_index(), static_cast<int>(stream.id()));
}

int index_or_current(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device_of_index(current_device()); }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    return stream_for_torch(current_stream(index_or_current(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_for_torch(stream_of(index_or_current(device), 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return stream_for_torch(next_stream(index_or_current(device)));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream_for_torch(next_stream(index_or_current(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    set_current_stream(stream.device_index(), static_cast<int>(stream.id()));
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Stream& own = own_stream(stream);
    return own.is_done(own.last_ticket());
  }
  void synchronizeStream(const c10::Stream& stream) const override { own_stream(stream).wait(); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize(device < 0 ? current_device() : device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->record(own_stream(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) static_cast<Event*>(event)->block(own_stream(stream));
  }
  bool queryEvent(void* event) const override {
    return !event || static_cast<Event*>(event)->is_done();
  }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->wait();
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex /*device*/) const override {
    const auto from = static_cast<Event*>(first)->time();
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(second)->time() - from)
        .count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (auto* const block = static_cast<Block*>(data.get_context()))
      block->users.push_back(&own_stream(stream));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct PinnedAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) override {
    void* const made = bytes ? allocate_pinned(bytes) : nullptr;
    return {made, made, made ? &release_pinned : &c10::detail::deleteNothing, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* dest, const void* source, std::size_t bytes) const override {
    default_copy_data(dest, source, bytes);
  }
};

struct FarGenerator final : at::CPUGeneratorImpl {
  explicit FarGenerator(int device) {
    device_ = device_of_index(device);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator one;
    return &one;
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Device getDeviceFromPtr(void* data) const override {
    return device_of_index(device_of(data));
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device < 0 ? current_device() : device);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

at::Generator new_generator(int device) { return at::make_generator<FarGenerator>(device); }

const at::Generator& default_generator(int device) {
  static auto* const all = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int d = 0; d < device_count(); ++d) made->push_back(new_generator(d));
    return made;
  }();
  return all->at(static_cast<std::size_t>(device));
}

}  // namespace far_device
