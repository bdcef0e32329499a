// Registers the simulated accelerator of far_runtime.h in PyTorch, as its PrivateUse1 back end.
//
// Every operator that isn't defined here goes to PyTorch's boxed CPU fallback: arguments are
// copied to the host, the CPU's kernel computes, and the changed or created tensors are copied
// back. Nothing waits for the last copy, so that the results of an operator arrive as late as a
// GPU's would.
#include <ATen/EmptyTensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from_and_resize_native.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <cstring>

#include "tests/torch_device/far_generator.h"
#include "tests/torch_device/far_runtime.h"

namespace far_device {
namespace {

// Frees a block of memory, in the form of a deleter of PyTorch's allocators.
void release_block(void* block) { release(static_cast<Block*>(block)); }

struct FarAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) override {
    const at::Device device(at::kPrivateUse1, static_cast<at::DeviceIndex>(current_device()));
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    Block* const block = far_device::allocate(bytes);
    return {block->address, block, &release_block, device};
  }
  void copy_data(void* dest, const void* source, std::size_t bytes) const override {
    current_stream(current_device()).enqueue([=] {
      std::memcpy(view_of(dest), view_of(source), bytes);
    });
  }
};

FarAllocator* allocator() {
  static FarAllocator one;
  return &one;
}
REGISTER_ALLOCATOR(at::kPrivateUse1, allocator())

// Sets the calling thread's device and restores it.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice() { set_current_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const int before_;
};

int index_of(const at::Tensor& tensor) { return tensor.device().index(); }

int index_of(std::optional<at::Device> device) {
  return device && device->has_index() ? device->index() : current_device();
}

// ---- tensors without values, and views ----

at::Tensor empty(at::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const OnDevice guard(index_of(device));
  constexpr at::DispatchKeySet keys(at::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(), keys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::SymIntArrayRef size, at::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  const OnDevice guard(index_of(device));
  constexpr at::DispatchKeySet keys(at::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                           C10_AS_INTARRAYREF_SLOW(stride), allocator(), keys,
                                           c10::dtype_or_default(dtype));
}

void grow(at::StorageImpl* storage, std::size_t bytes) {
  const OnDevice guard(storage->device().index());
  at::DataPtr bigger = allocator()->allocate(bytes);
  const std::size_t kept = std::min(bytes, storage->nbytes());
  if (kept) allocator()->copy_data(bigger.get(), storage->data(), kept);
  storage->set_data_ptr(std::move(bigger));
  storage->set_nbytes(bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::SymIntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  at::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  if (format) impl->empty_tensor_restride(*format);
  const auto elements = static_cast<std::size_t>(self.storage_offset() + self.numel());
  const std::size_t bytes = elements * self.dtype().itemsize();
  at::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (self.numel() && bytes > storage->nbytes()) grow(storage, bytes);
  return self;
}

at::Tensor as_strided(const at::Tensor& self, at::SymIntArrayRef size, at::SymIntArrayRef stride,
                      std::optional<at::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional(offset->expect_int()) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, at::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, at::SymIntArrayRef size,
                         at::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, at::SymInt offset,
                        at::SymIntArrayRef size, at::SymIntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset.expect_int(),
                                      C10_AS_INTARRAYREF_SLOW(size),
                                      C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  return at::native::set_(self, std::move(storage));
}

// PyTorch calls this before `parameter.data = tensor`. Its core has a list of back ends for which
// this works, and the list lacks PrivateUse1.
bool may_take_data_of(const at::Tensor& /*self*/, const at::Tensor& /*from*/) { return true; }

// ---- copies ----

// Returns a view of the elements for the device's own use, within tasks.
at::Tensor in_view(const at::Tensor& tensor) {
  return at::from_blob(view_of(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

thread_local bool falling_back = false;

void copy_in_task(const at::Tensor& from, at::Tensor to) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  to.copy_(from);
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Stream& stream = current_stream(index_of(to));
  const at::Tensor target = in_view(to);
  // Pinned memory is read when the task runs, so it must not change before. Other memory is read at
  // once, except results of the fallback, which no other code holds.
  const bool late = falling_back || (non_blocking && is_pinned(from.const_data_ptr()));
  const at::Tensor source = late ? from.alias() : from.clone();
  stream.enqueue([source, target] { copy_in_task(source, target); });
  if (!non_blocking && !falling_back) stream.wait();
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Stream& stream = current_stream(index_of(from));
  const at::Tensor source = in_view(from);
  const bool late = non_blocking && is_pinned(to.const_data_ptr());
  const at::Tensor target = late ? to.alias() : to;
  stream.enqueue([source, target] { copy_in_task(source, target); });
  if (!late) stream.wait();
}

void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  Stream& stream = current_stream(index_of(from));
  const at::Tensor source = in_view(from);
  const at::Tensor target = in_view(to);
  Stream& other = current_stream(index_of(to));
  if (&other != &stream) {
    const std::uint64_t before = other.last_ticket();
    stream.enqueue([&other, before] { other.wait(before); });
  }
  const std::uint64_t ticket = stream.enqueue([source, target] { copy_in_task(source, target); });
  if (&other != &stream) other.enqueue([&stream, ticket] { stream.wait(ticket); });
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  if (self.numel() == 0) return to;
  if (self.sizes() != to.sizes()) return copy_from(self.expand(to.sizes()), to, non_blocking);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (self.is_cpu())
    copy_to_device(self, to, non_blocking);
  else if (to.is_cpu())
    copy_to_host(self, to, non_blocking);
  else
    copy_on_devices(self, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) { return self.cpu().item(); }

void record_stream(at::Tensor& self, at::Stream stream) {
  auto* const block = static_cast<Block*>(self.storage().data_ptr().get_context());
  if (block)
    block->users.push_back(&stream_of(stream.device_index(), static_cast<int>(stream.id())));
}

// ---- everything else ----

// The schema of native_batch_norm doesn't say that it changes the running statistics, so the
// fallback wouldn't copy them back. This other operator's schema does.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  if (!running_mean || !running_mean->defined())
    return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  at::Tensor mean = *running_mean;
  at::Tensor var = *running_var;
  return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
}

// Random operators of the CPU use its generator. While this object exists, that generator has the
// state of a generator of this device.
class DrawsFrom {
 public:
  explicit DrawsFrom(at::Generator own) : own_(std::move(own)) {
    before_ = host_.get_state();
    host_.set_state(own_.get_state());
  }
  ~DrawsFrom() {
    own_.set_state(host_.get_state());
    host_.set_state(before_);
  }
  DrawsFrom(const DrawsFrom&) = delete;
  DrawsFrom& operator=(const DrawsFrom&) = delete;

 private:
  at::Generator own_;
  at::Generator host_ = at::detail::getDefaultCPUGenerator();
  at::Tensor before_;
};

// Removes a generator of this device from the arguments and returns it, or the default one if there
// is none.
at::Generator taken_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
    at::IValue& argument = (*stack)[i];
    if (!argument.isGenerator()) continue;
    at::Generator given = argument.toGenerator();
    if (given.device().is_privateuseone()) {
      argument = at::IValue();
      return given;
    }
  }
  return default_generator(current_device());
}

class InFallback {
 public:
  InFallback() { falling_back = true; }
  ~InFallback() { falling_back = outer_; }
  InFallback(const InFallback&) = delete;
  InFallback& operator=(const InFallback&) = delete;

 private:
  const bool outer_ = falling_back;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const InFallback inside;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    const DrawsFrom draws(taken_generator(op, stack));
    at::native::cpu_fallback(op, stack);
  } else {
    at::native::cpu_fallback(op, stack);
  }
}

// PyTorch calls convolutions of other back ends by these names, which the CPU lacks.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const InFallback inside;
  const std::optional<at::Tensor> added =
      bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
  return at::convolution(input.cpu(), weight.cpu(), added, stride, padding, dilation, transposed,
                         output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const InFallback inside;
  const std::vector<int64_t> bias{gradient.size(1)};
  auto [a, b, c] =
      at::convolution_backward(gradient.cpu(), input.cpu(), weight.cpu(), bias, stride, padding,
                               dilation, transposed, output_padding, groups, wanted);
  const auto moved = [&](const at::Tensor& t) { return t.defined() ? t.to(input.device()) : t; };
  return {moved(a), moved(b), moved(c)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("record_stream", &record_stream);
  m.impl("native_batch_norm", &batch_norm);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("_has_compatible_shallow_copy_type", &may_take_data_of);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// The functions that the Python module of the device calls (far.py).
TORCH_LIBRARY(far, m) {
  m.def("device_count", []() -> int64_t { return device_count(); });
  m.def("current_device", []() -> int64_t { return current_device(); });
  m.def("set_device(int device) -> ()",
        [](int64_t device) { set_current_device(static_cast<int>(device)); });
  m.def("synchronize(int device) -> ()",
        [](int64_t device) { synchronize(static_cast<int>(device)); });
  m.def("allocated_bytes(int device) -> int", [](int64_t device) {
    return static_cast<int64_t>(allocated_bytes(static_cast<int>(device)));
  });
  m.def("manual_seed(int seed, int device) -> ()", [](int64_t seed, int64_t device) {
    at::Generator generator = default_generator(static_cast<int>(device));
    generator.set_current_seed(static_cast<std::uint64_t>(seed));
  });
  m.def("get_rng_state(int device) -> Tensor",
        [](int64_t device) { return default_generator(static_cast<int>(device)).get_state(); });
  m.def("set_rng_state(Tensor state, int device) -> ()",
        [](const at::Tensor& state, int64_t device) {
          at::Generator generator = default_generator(static_cast<int>(device));
          generator.set_state(state);
        });
}

}  // namespace
}  // namespace far_device
