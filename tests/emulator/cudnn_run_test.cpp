// Tests of the emulated cuDNN on the emulated GPU: the engines that it offers, the time at which it
// computes, and its reports about a plan's memory.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>

#include "tests/emulator/cudnn_calls.h"
#include "tests/emulator/runtime.h"

namespace hetu::emulator {
namespace {

using testing::HasSubstr;

constexpr std::size_t kX = 288, kW = 288, kY = 576;  // elements

class CudnnRuns : public testing::Test {
 protected:
  void SetUp() override {
    if (of_nvidia() != nullptr) GTEST_SKIP() << "it has no card";
    ASSERT_NE(cudnn_function<decltype(cudnnCreate)>("cudnnCreate"), nullptr);
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, 0, 0), cudaSuccess);
    ASSERT_EQ(create(), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnn_function<decltype(cudnnSetStream)>("cudnnSetStream")(handle_, stream_),
              CUDNN_STATUS_SUCCESS);
    x_ = filled(kX, 1);
    w_ = filled(kW, 0.5F);
    y_ = filled(kY, -7);
    workspace_ = filled(kY + 16, -7);
  }
  void TearDown() override {
    if (of_nvidia() != nullptr) return;
    card().broken = card().last = cudaSuccess;
    static_cast<void>(cudaStreamSynchronize(stream_));
    for (float* const one : {x_, w_, y_, workspace_}) static_cast<void>(cudaFree(one));
    cudnn_function<decltype(cudnnDestroy)>("cudnnDestroy")(handle_);
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  cudnnStatus_t create() { return cudnn_function<decltype(cudnnCreate)>("cudnnCreate")(&handle_); }
  static float* filled(std::size_t elements, float with) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, elements * 4), cudaSuccess);
    std::fill_n(static_cast<float*>(made), elements, with);
    return static_cast<float*>(made);
  }

  /// Collects the engines of both modes, best first.
  void ask(const ForwardToTell& forward = {}) {
    Described node(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    ASSERT_EQ(forward.to(node), CUDNN_STATUS_SUCCESS);
    Described graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.other(CUDNN_ATTR_OPERATIONGRAPH_OPS, node)
        .one(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .finalize();
    ASSERT_EQ(graph.status, CUDNN_STATUS_SUCCESS);
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      Described guess(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      guess.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
          .one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
          .finalize();
      ASSERT_EQ(guess.status, CUDNN_STATUS_SUCCESS);
      const auto type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
      const auto counted = guess.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, type, 0, nullptr);
      std::vector<cudnnBackendDescriptor_t> to;
      for (std::int64_t i = 0; i < counted; ++i)
        to.push_back(configs_.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).it);
      const auto given = guess.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, type, counted, to.data());
      for (std::int64_t i = given; i < counted; ++i) configs_.pop_back();
    }
  }

  /// Makes the plan of the first engine without notes that makes one, with or without a workspace.
  void plan(bool with_workspace) {
    for (const Described& config : configs_) {
      Described engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      Described& c = const_cast<Described&>(config);
      c.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine.it);
      cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
      const auto count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
      if (count > 1 || (count == 1 && notes[0] != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP)) continue;
      plan_ = std::make_unique<Described>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan_->one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_)
          .other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
          .finalize();
      if (plan_->status != CUDNN_STATUS_SUCCESS) continue;
      plan_->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &room_);
      if (room_ <= (1 << 20) && (room_ > 0) == with_workspace) return;
    }
    FAIL() << "no such engine";
  }

  cudnnStatus_t execute(const Numbers& names, const std::vector<void*>& at, void* workspace) {
    Described pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.numbers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(at.size()), at.data())
        .one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
        .finalize();
    EXPECT_EQ(pack.status, CUDNN_STATUS_SUCCESS);
    return cudnn_function<decltype(cudnnBackendExecute)>("cudnnBackendExecute")(handle_, plan_->it,
                                                                                pack.it);
  }

  /// Runs a plan with one wrong argument and returns the message.
  std::string refused(const Numbers& names, const std::vector<void*>& at, void* workspace,
                      cudnnStatus_t want) {
    testing::internal::CaptureStderr();
    const cudnnStatus_t got = execute(names, at, workspace);
    std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(got, want) << told;
    EXPECT_EQ(y_[0], -7) << "it has run";
    return told;
  }

  cudaStream_t stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::list<Described> configs_;
  std::unique_ptr<Described> plan_;
  std::int64_t room_ = 0;
  float *x_ = nullptr, *w_ = nullptr, *y_ = nullptr, *workspace_ = nullptr;
};

TEST_F(CudnnRuns, SomeEnginesMakeNoPlanAndSomeWantTooMuch) {
  ask();
  int without = 0, large = 0;
  for (const Described& config : configs_) {
    Described plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
        .finalize();
    std::int64_t room = 0;
    if (plan.status != CUDNN_STATUS_SUCCESS)
      ++without;
    else
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &room);
    if (room > (std::int64_t{32} << 20)) ++large;
  }
  EXPECT_GT(without, 0);
  EXPECT_GT(large, 0);
  EXPECT_GT(configs_.size(), 4U);
}

TEST_F(CudnnRuns, ComputeWhenTheyAreWaitedFor) {
  ask();
  for (const bool with_workspace : {true, false}) {
    plan(with_workspace);
    std::fill_n(y_, kY, -7.0F);
    ASSERT_EQ(execute({3, 1, 2}, {y_, x_, w_}, workspace_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(y_[0], -7);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(y_[0], 4 * 4 * 0.5F) << "a corner";
    EXPECT_EQ(y_[7], 4 * 9 * 0.5F);
    EXPECT_EQ(y_[kY - 1], 4 * 4 * 0.5F);
  }
}

TEST_F(CudnnRuns, AreTakenByACaptureThatTakesNoHandle) {
  ask();
  plan(true);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(execute({1, 2, 3}, {x_, w_, y_}, workspace_), CUDNN_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t instance = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(instance, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(y_[7], 4 * 9 * 0.5F);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  const cudnnHandle_t before = handle_;
  EXPECT_NE(create(), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(plan_->finalize().status, CUDNN_STATUS_SUCCESS);
  handle_ = before;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudnnRuns, TellATensorThatIsNotAligned) {
  ask();
  plan(true);
  EXPECT_THAT(
      refused({1, 2, 3}, {x_, w_ + 1, y_}, workspace_, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER),
      HasSubstr("variant pack: tensor 2 at"));
}

TEST_F(CudnnRuns, TellATensorThatIsMissing) {
  ask();
  plan(true);
  EXPECT_THAT(refused({1, 2, 4}, {x_, w_, y_}, workspace_, CUDNN_STATUS_BAD_PARAM),
              HasSubstr("variant pack: no pointer of tensor 3"));
  EXPECT_THAT(
      refused({1, 2, 3}, {x_, nullptr, y_}, workspace_, CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
      HasSubstr("variant pack: tensor 2 is null"));
}

TEST_F(CudnnRuns, TellABufferThatEndsTooSoon) {
  ask();
  plan(true);
  EXPECT_THAT(refused({1, 2, 3}, {x_ + 4, w_, y_}, workspace_, CUDNN_STATUS_EXECUTION_FAILED),
              HasSubstr("emulated card: convolution, x: 1152 bytes at 16 of a buffer of 1152"));
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress) << "of the card, for good";
}

TEST_F(CudnnRuns, TellMemoryOfTheHost) {
  ask();
  plan(true);
  alignas(16) float there[kW] = {};
  EXPECT_THAT(refused({1, 2, 3}, {x_, there, y_}, workspace_, CUDNN_STATUS_EXECUTION_FAILED),
              HasSubstr("is in no buffer"));
}

TEST_F(CudnnRuns, TellAWorkspaceThatIsTooSmall) {
  ask();
  plan(true);
  ASSERT_GT(room_, 16);
  EXPECT_THAT(refused({1, 2, 3}, {x_, w_, y_}, nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
              HasSubstr("plan: it wants"));
  float* const end = workspace_ + (kY + 16) - 4;
  EXPECT_THAT(refused({1, 2, 3}, {x_, w_, y_}, end, CUDNN_STATUS_EXECUTION_FAILED),
              HasSubstr("emulated card: convolution, workspace: "));
}

TEST_F(CudnnRuns, TellWhatOverlaps) {
  ask();
  plan(true);
  EXPECT_THAT(refused({1, 2, 3}, {y_, w_, y_}, workspace_, CUDNN_STATUS_EXECUTION_FAILED),
              HasSubstr("overlap"));
}

TEST_F(CudnnRuns, TellAPlanThatIsNone) {
  ask();
  plan(true);
  plan_ = std::make_unique<Described>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  EXPECT_THAT(refused({1, 2, 3}, {x_, w_, y_}, workspace_, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED),
              HasSubstr("plan: it is not finalized"));
}

}  // namespace
}  // namespace hetu::emulator
