// Tests of the emulated cuDNN's messages about descriptors and a plan's arguments. Mistakes in
// descriptors are mistakes for NVIDIA's library too: CUDNN_UNDER_TEST=…/libcudnn.so.9 runs them
// there.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/emulator/cudnn_calls.h"
#include "tests/emulator/runtime.h"

namespace hetu::emulator {
namespace {

using testing::HasSubstr;

struct Mistake {
  const char* name;
  std::function<cudnnStatus_t()> make;
  const char* told;       ///< expected on stderr
  bool by_nvidia = true;  ///< NVIDIA's library also refuses it, and not only when a plan is made
};

cudnnStatus_t of_tensor(const std::function<void(TensorToTell&)>& change) {
  TensorToTell tensor{1, {2, 4, 6, 6}, {144, 36, 6, 1}};
  change(tensor);
  Described d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  return tensor.to(d);
}
cudnnStatus_t of_windows(const std::function<void(WindowsToTell&)>& change) {
  WindowsToTell windows;
  change(windows);
  Described d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  return windows.to(d);
}
cudnnStatus_t of_operation(const std::function<void(ForwardToTell&)>& change) {
  ForwardToTell forward;
  change(forward);
  Described d(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  return forward.to(d);
}
cudnnStatus_t of_call(cudnnBackendDescriptorType_t type,
                      const std::function<void(Described&)>& call) {
  Described d(type);
  call(d);
  return d.status;
}
cudnnStatus_t of_pack(const Numbers& names, std::size_t pointers) {
  return of_call(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, [&](Described& d) {
    const std::vector<void*> at(pointers, &d);
    if (!names.empty()) d.numbers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names);
    d.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
          static_cast<std::int64_t>(pointers), at.data());
    d.finalize();
  });
}

std::vector<Mistake> mistakes() {  // NOLINT(readability-function-size): a table
  const auto tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  const auto without_of_tensor = [](Name name) {
    return [=] { return of_tensor([&](auto& t) { t.left_out = {name}; }); };
  };
  const auto without_of_windows = [](Name name) {
    return [=] { return of_windows([&](auto& w) { w.left_out = {name}; }); };
  };
  const auto without_of_operation = [](Name name) {
    return [=] { return of_operation([&](auto& o) { o.left_out = {name}; }); };
  };
  return {
      {"no unique id", without_of_tensor(CUDNN_ATTR_TENSOR_UNIQUE_ID),
       "tensor: not set: the unique id", false},
      {"no data type", without_of_tensor(CUDNN_ATTR_TENSOR_DATA_TYPE),
       "tensor: not set: the data type", false},
      {"no dimensions", without_of_tensor(CUDNN_ATTR_TENSOR_DIMENSIONS),
       "tensor: not set: dimensions"},
      {"no strides", without_of_tensor(CUDNN_ATTR_TENSOR_STRIDES), "tensor: not set: strides"},
      {"no alignment", without_of_tensor(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
       "tensor: not set: the alignment"},
      {"a stride too few", [] { return of_tensor([](auto& t) {
                                  t.step = {36, 6, 1};
                                }); },
       "as many strides as dimensions"},
      {"nine axes", [] { return of_tensor([](auto& t) { t.size = t.step = Numbers(9, 1); }); },
       "dimensions has 1 to 8 elements, not 9"},
      {"an alignment of 3", [] { return of_tensor([](auto& t) { t.alignment = 3; }); },
       "a power of two"},
      {"an alignment of 2", [] { return of_tensor([](auto& t) { t.alignment = 2; }); },
       "an element's or more"},
      {"a size of 0", [] { return of_tensor([](auto& t) { t.size[1] = 0; }); },
       "dimensions and strides of 1 or more", false},
      {"eight bytes an element",
       [] { return of_tensor([](auto& t) { t.type = CUDNN_DATA_DOUBLE; }); },
       "another data type than float", false},
      {"a float for a number",
       [=] {
         return of_call(tensor, [](Described& d) {
           d.one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1.0F);
         });
       },
       "the unique id is of type 3, not 4"},
      {"two numbers for one",
       [=] {
         return of_call(tensor, [](Described& d) {
           d.numbers(CUDNN_ATTR_TENSOR_UNIQUE_ID, {1, 2});
         });
       },
       "the unique id has 1 to 1 elements, not 2"},
      {"no number",
       [=] {
         return of_call(tensor, [](Described& d) {
           d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr);
         });
       },
       "the unique id has 1 to 1 elements"},
      {"an attribute of others",
       [=] {
         return of_call(tensor,
                        [](Described& d) { d.numbers(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2}); });
       },
       "tensor: attribute 106 is not known of it"},
      {"set when it is finalized",
       [=] {
         return of_call(tensor, [](Described& d) {
           TensorToTell{1, {1, 1}, {1, 1}}.to(d);
           d.numbers(CUDNN_ATTR_TENSOR_UNIQUE_ID, {4});
         });
       },
       "tensor: it is finalized"},
      {"finalized twice",
       [=] {
         return of_call(tensor, [](Described& d) {
           TensorToTell{1, {1, 1}, {1, 1}}.to(d);
           d.finalize();
         });
       },
       "tensor: it is finalized twice"},
      {"read before it is finalized",
       [=] {
         return of_call(tensor, [](Described& d) {
           std::int64_t name = 0;
           d.numbers(CUDNN_ATTR_TENSOR_UNIQUE_ID, {1});
           d.get(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
         });
       },
       "tensor: it is not finalized"},
      {"read as another type",
       [=] {
         return of_call(tensor, [](Described& d) {
           float name = 0;
           TensorToTell{1, {1, 1}, {1, 1}}.to(d);
           d.get(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &name);
         });
       },
       "the unique id is of type 3, not 4"},
      {"no spatial dimensions", without_of_windows(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS),
       "convolution: not set: spatial dimensions"},
      {"no strides of windows", without_of_windows(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
       "convolution: not set: strides"},
      {"no dilations", without_of_windows(CUDNN_ATTR_CONVOLUTION_DILATIONS),
       "convolution: not set: dilations"},
      {"no paddings", without_of_windows(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
       "convolution: not set: paddings before", false},
      {"a stride of 0", [] { return of_windows([](auto& w) {
                               w.stride = {0, 1};
                             }); },
       "strides and dilations of 1, paddings of 0 or more"},
      {"a padding below 0", [] { return of_windows([](auto& w) {
                                   w.before = {-1, 0};
                                 }); },
       "strides and dilations of 1, paddings of 0 or more"},
      {"three strides of two", [] { return of_windows([](auto& w) {
                                      w.stride = {1, 1, 1};
                                    }); },
       "a number for each spatial dimension"},
      {"no x", without_of_operation(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
       "forward convolution: not set: x"},
      {"no convolution", without_of_operation(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
       "forward convolution: not set: the convolution"},
      {"y of another size", [] { return of_operation([](auto& o) { o.y.size[2] = 5; }); },
       "y has size 5 on spatial axis 0, not 6"},
      {"y of other channels", [] { return of_operation([](auto& o) { o.y.size[1] = 7; }); },
       "channels 4 of x, 7 of y by a filter [8, 4]"},
      {"three channels by four", [] { return of_operation([](auto& o) { o.x.size[1] = 3; }); },
       "channels 3 of x, 8 of y by a filter [8, 4]"},
      {"y of more images", [] { return of_operation([](auto& o) { o.y.size[0] = 3; }); },
       "2 images of x, 3 of y"},
      {"one name for two", [] { return of_operation([](auto& o) { o.y.name = 1; }); },
       "unique ids 1, 2, 1 are not three", false},
      {"tensors of several types",
       [] { return of_operation([](auto& o) { o.w.type = CUDNN_DATA_HALF; }); },
       "tensors of several types", false},
      {"a graph of nothing",
       [] {
         return of_call(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                        [](Described& d) { d.finalize(); });
       },
       "operation graph: not set: its one operation"},
      {"a graph of what is not finalized",
       [] {
         return of_call(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, [](Described& d) {
           d.other(CUDNN_ATTR_OPERATIONGRAPH_OPS,
                   Described(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
         });
       },
       "its one operation is not finalized"},
      {"heuristics of nothing",
       [] {
         return of_call(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, [](Described& d) { d.finalize(); });
       },
       "heuristics: not set: the graph"},
      {"a plan of nothing",
       [] {
         return of_call(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                        [](Described& d) { d.finalize(); });
       },
       "plan: not set: the handle"},
      {"a plan whose workspace is set",
       [] {
         return of_call(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, [](Described& d) {
           d.numbers(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, {1});
         });
       },
       "the size of its workspace is read, not set"},
      {"a pointer too few",
       [] {
         return of_pack({1, 2, 3}, 2);
       },
       "as many pointers as names"},
      {"no names", [] { return of_pack({}, 3); }, "variant pack: not set: unique ids"},
      {"a tensor twice",
       [] {
         return of_pack({1, 1, 3}, 3);
       },
       "each tensor once", false},
      {"null for a descriptor",
       [] {
         return of_call(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, [](Described& d) {
           d.one(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 cudnnBackendDescriptor_t{nullptr});
         });
       },
       "its one operation is null"},
  };
}

class CudnnMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(CudnnMistakes, AreRefusedByName) {
  const Mistake& mistake = GetParam();
  testing::internal::CaptureStderr();
  const cudnnStatus_t status = mistake.make();
  const std::string told = testing::internal::GetCapturedStderr();
  if (of_nvidia() != nullptr) {
    EXPECT_EQ(status != CUDNN_STATUS_SUCCESS, mistake.by_nvidia) << mistake.name;
    return;
  }
  EXPECT_NE(status, CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(told, HasSubstr(std::string("emulated cuDNN: "))) << mistake.name;
  EXPECT_THAT(told, HasSubstr(mistake.told)) << mistake.name;
}

INSTANTIATE_TEST_SUITE_P(All, CudnnMistakes, testing::ValuesIn(mistakes()), [](const auto& one) {
  std::string name = one.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(CudnnDescriptors, AreWholeAndTakeCopies) {
  EXPECT_EQ(of_operation([](auto&) {}), CUDNN_STATUS_SUCCESS) << "its tensors are gone by then";
  Described d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  ASSERT_EQ((TensorToTell{7, {2, 4, 6, 6}, {144, 36, 6, 1}}.to(d)), CUDNN_STATUS_SUCCESS);
  Numbers size(8);
  EXPECT_EQ(d.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, nullptr), 4);
  EXPECT_EQ(d.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, size.data()), 2);
  EXPECT_EQ(d.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, size.data()), 4);
  EXPECT_THAT(size, testing::ElementsAre(2, 4, 6, 6, 0, 0, 0, 0));
}

}  // namespace
}  // namespace hetu::emulator
