// The table of back ends, events, default copies, and spans.
#include "executor/device/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/words.h"
#include "executor/device/backends.h"
#include "ops/registry.h"

namespace hetu {
namespace {

std::int64_t cpu_factor_scratch(std::int64_t inputs, std::int64_t outputs) {
  return cpu_tensor_kernels().factor_scratch(inputs, outputs);
}

constexpr Backend kBackends[] = {
    {"cpu", &open_cpu, &prepare_cpu, &cpu_factor_scratch},
    {"far", &open_far, &prepare_cpu, &cpu_factor_scratch, true},
    {"cuda", &open_cuda, &prepare_on_cuda, &factor_scratch_on_cuda, true}};

}  // namespace

Device::Memory Device::alloc_for(std::int64_t bytes, std::string_view purpose) {
  Memory memory = alloc(bytes);
  if (memory == nullptr)
    fail(Code::Io,
         "{}: device {} cannot allocate {}; use more stages or smaller micro-batches, or end other "
         "programs that use its memory",
         purpose, name(), memory_text(bytes));
  return memory;
}

const Backend& backend(std::string_view name) {
  std::string known;
  for (const Backend& b : kBackends) {
    if (name == b.name) return b;
    known += (known.empty() ? "" : ", ") + std::string(b.name);
  }
  fail(Code::InvalidArgument, "unknown device '{}'; known: {}", name, known);
}

std::unique_ptr<Device> open_device(std::string_view name) { return backend(name).open(); }

std::vector<const char*> device_names() {
  std::vector<const char*> names;
  for (const Backend& b : kBackends) names.push_back(b.name);
  return names;
}

void Event::Coming::complete(std::int64_t done_ns, std::exception_ptr error) {
  std::vector<std::function<void()>> then;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    done_ns_ = done_ns;
    error_ = std::move(error);
    then.swap(then_);
    changed_.notify_all();
  }
  for (const auto& call : then) call();
}

bool Event::done() const {
  if (!coming_) return true;
  const std::lock_guard lock(coming_->mutex_);
  return coming_->done_;
}

std::int64_t Event::wait() const {
  if (!coming_) return done_ns_;
  std::unique_lock lock(coming_->mutex_);
  coming_->changed_.wait(lock, [&] { return coming_->done_; });
  if (coming_->error_) std::rethrow_exception(coming_->error_);
  return coming_->done_ns_;
}

bool Event::wait_for(double seconds) const {
  if (!coming_) return true;
  std::unique_lock lock(coming_->mutex_);
  return coming_->changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                    [&] { return coming_->done_; });
}

void Event::then(std::function<void()> call) const {
  if (coming_) {
    const std::lock_guard lock(coming_->mutex_);
    if (!coming_->done_) return coming_->then_.push_back(std::move(call));
  }
  call();
}

void Queue::copy(void* to, const void* from, std::int64_t bytes) {
  if (to != from && bytes > 0) move(to, from, bytes, CopyDirection::Within);
}

void Queue::upload(void* to, const void* from_host, std::int64_t bytes) {
  if (bytes > 0) move(to, from_host, bytes, CopyDirection::ToDevice);
}

void Queue::download(void* to_host, const void* from, std::int64_t bytes) {
  if (bytes > 0) move(to_host, from, bytes, CopyDirection::ToHost);
}

void Queue::move(void* to, const void* from, std::int64_t bytes, CopyDirection direction) {
  run([=](AddressMap at) {
    void* const there = direction == CopyDirection::ToHost ? to : at(to);
    std::memcpy(there, direction == CopyDirection::ToDevice ? from : at(from),
                static_cast<std::size_t>(bytes));
  });
}

DeviceSpan host_span(float* data, std::int64_t elements) {
  static const std::unique_ptr<Device> host = open_cpu();
  return {data, elements, host.get()};
}

void DeviceSpan::read(float* to) const {
  if (narrow != nullptr) {
    std::vector<BFloat16> room(static_cast<std::size_t>(elements));
    device->queue().download(room.data(), narrow, bytes());
    device->queue().record().wait();
    std::copy(room.begin(), room.end(), to);
    return;
  }
  device->queue().download(to, data, bytes());
  device->queue().record().wait();
}

std::vector<float> DeviceSpan::values() const {
  std::vector<float> out(static_cast<std::size_t>(elements));
  read(out.data());
  return out;
}

void DeviceSpan::write(const float* from) const {
  if (narrow != nullptr) {
    std::vector<BFloat16> room(static_cast<std::size_t>(elements));
    std::transform(from, from + elements, room.begin(), [](float x) { return BFloat16(x); });
    device->queue().upload(narrow, room.data(), bytes());
    device->queue().record().wait();
    return;
  }
  device->queue().upload(data, from, bytes());
  device->queue().record().wait();
}

void DeviceSpan::add(const float* from) const {
  HETU_ASSERT(narrow == nullptr);
  Device::Memory room;
  const float* there = from;
  if (!device->in_host_memory()) {
    room = device->alloc_for(bytes(), "an average of weights");
    device->queue().upload(room.get(), from, bytes());
    there = reinterpret_cast<const float*>(room.get());
  }
  device->queue().run([to = data, there, n = elements, add = device->kernels().add](AddressMap at) {
    add(at(to), at(there), n);
  });
  device->queue().record().wait();
}

const float* DeviceSpan::host(std::vector<float>& room) const {
  if (device->in_host_memory() && narrow == nullptr) {
    device->queue().record().wait();
    return data;
  }
  room = values();
  return room.data();
}

}  // namespace hetu
