#include "executor/state/weights_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "executor/comm/inproc.h"
#include "executor/state/checkpoint.h"
#include "executor/state/checkpoint_report.h"
#include "executor/state/safetensors.h"
#include "graph/base/error.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kWords = "bert.embeddings.word_embeddings.weight";

class WeightsFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hetu-weights-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

  // Saves parameters, each with one optimizer state of the negated values.
  void save(const std::string& name, const std::vector<std::pair<std::string, Shape>>& parameters,
            float first) {
    std::vector<std::vector<float>> data;
    SavePart part = {"stage-0.safetensors", {}};
    for (const auto& [parameter, shape] : parameters) {
      const auto elements = static_cast<std::size_t>(element_count(shape));
      for (const float sign : {1.0F, -1.0F}) {
        data.emplace_back(elements);
        for (std::size_t i = 0; i < elements; ++i)
          data.back()[i] = sign * (i ? first + static_cast<float>(i) : first);
        part.tensors.push_back({parameter, sign > 0 ? "" : "exp_avg", shape,
                                host_span(data.back().data(), element_count(shape)), true});
      }
    }
    const auto alone = comm::make_inproc(1);
    save_checkpoint({in(name), 3}, 7, R"({"seed":5,"position":{"index":3}})", {part}, *alone[0]);
  }

  std::vector<float> weight(const std::string& name, const std::string& parameter) {
    const Manifest m = read_manifest(in(name));
    const CheckpointTensor* t = m.find(parameter, "");
    if (!t) return {};
    std::vector<float> out(static_cast<std::size_t>(element_count(t->shape)));
    read_tensor(m, *t, out.data());
    return out;
  }

  fs::path folder_;
};

TEST_F(WeightsFile, ExportedWeightsComeBackBitForBit) {
  save("a", {{kWords, {4, 2}}, {"cls.predictions.bias", {4}}}, 0.1F);
  EXPECT_EQ(export_weights(in("a"), in("w")), 3);
  const SafetensorsFile file(in("w"));
  EXPECT_NE(file.find("cls.predictions.decoder.bias"), nullptr);
  EXPECT_EQ(file.find(std::string(kWords) + "#exp_avg"), nullptr);
  const Imported made = import_weights(in("w"), in("b"));
  EXPECT_EQ(made.tensors, 2);
  EXPECT_EQ(made.dropped, 1);
  EXPECT_EQ(read_manifest(in("b")).step, 0);
  EXPECT_EQ(weight("b", kWords), weight("a", kWords));
  EXPECT_EQ(weight("b", "cls.predictions.bias"), weight("a", "cls.predictions.bias"));
  EXPECT_THAT([&] { import_weights(in("w"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("holds a checkpoint already")));
}

TEST_F(WeightsFile, StatesStartAtZeroOnlyForImportedWeights) {
  save("a", {{kWords, {2, 2}}}, 1);
  export_weights(in("a"), in("w"));
  import_weights(in("w"), in("b"));
  std::vector<float> data(4, 9), state(4, 9);
  load_checkpoint(read_manifest(in("b")),
                  {{kWords, "", {2, 2}, host_span(data.data(), 4), true},
                   {kWords, "momentum", {2, 2}, host_span(state.data(), 4), true}});
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(state, std::vector<float>(4, 0));
  EXPECT_THAT(
      [&] {
        load_checkpoint(read_manifest(in("a")),
                        {{kWords, "momentum", {2, 2}, host_span(state.data(), 4), true}});
      },
      ThrowsMessage<Error>(HasSubstr("#momentum' [2, 2]")));
}

TEST_F(WeightsFile, CountsOfBatchNormsAreInt64InFiles) {
  const float mean[] = {0.25F, -3};
  const std::int64_t count = 16'777'215, too_many = 16'777'217;
  const std::vector<TensorSource> tensors = {{"bn1.num_batches_tracked", DType::Int64, {}, &count},
                                             {"bn1.running_mean", DType::Float32, {2}, mean}};
  write_safetensors(in("w"), tensors);
  EXPECT_EQ(import_weights(in("w"), in("a")).tensors, 2);
  EXPECT_EQ(weight("a", "bn1.num_batches_tracked"), std::vector<float>{16'777'215});
  EXPECT_EQ(export_weights(in("a"), in("v")), 2);
  const SafetensorsFile file(in("v"));
  const TensorEntry* back = file.find("bn1.num_batches_tracked");
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->dtype, DType::Int64);
  EXPECT_EQ(back->shape, Shape{});
  std::int64_t got = 0;
  file.read(*back, &got);
  EXPECT_EQ(got, count);
  write_safetensors(in("x"), {{"bn1.num_batches_tracked", DType::Int64, {}, &too_many}});
  EXPECT_THAT([&] { import_weights(in("x"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("from 0 to 16777216")));
  write_safetensors(in("y"), {{"bn1.weight", DType::Int64, {}, &count}});
  EXPECT_THAT([&] { import_weights(in("y"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("weights are float32")));
}

TEST_F(WeightsFile, ReadsOldNamesBuffersAndNarrowTypes) {
  const std::vector<float> words = {1, 2, 3, 4}, bias = {0.5F, -0.5F}, gamma = {3};
  const std::vector<std::int64_t> ids = {0, 1};
  // 1, -2, the least and the largest of binary16; the same bits mean others in bfloat16.
  const std::vector<std::uint16_t> bits = {0x3C00, 0xC000, 0x0001, 0x7BFF};
  write_safetensors(in("w"),
                    {{kWords, DType::Float32, {2, 2}, words.data()},
                     {"cls.predictions.decoder.weight", DType::Float32, {2, 2}, words.data()},
                     {"cls.predictions.decoder.bias", DType::Float32, {2}, bias.data()},
                     {"bert.embeddings.position_ids", DType::Int64, {1, 2}, ids.data()},
                     {"bert.embeddings.LayerNorm.gamma", DType::Float32, {1}, gamma.data()},
                     {"half", DType::Float16, {4}, bits.data()},
                     {"brain", DType::BFloat16, {4}, bits.data()}});
  const Imported made = import_weights(in("w"), in("b"));
  EXPECT_EQ(made.tensors, 5);
  EXPECT_EQ(made.dropped, 2);
  EXPECT_EQ(weight("b", "cls.predictions.bias"), bias);
  EXPECT_EQ(weight("b", "bert.embeddings.LayerNorm.weight"), gamma);
  EXPECT_EQ(weight("b", "half"), (std::vector<float>{1, -2, std::ldexp(1.0F, -24), 65504}));
  EXPECT_EQ(weight("b", "brain")[0], std::bit_cast<float>(0x3C000000U));
}

TEST_F(WeightsFile, RefusesWhatIsNotClear) {
  const std::vector<float> one = {1, 2}, other = {1, 3};
  const std::vector<std::int32_t> whole = {1, 2};
  write_safetensors(in("w"), {{"cls.predictions.bias", DType::Float32, {2}, one.data()},
                              {"cls.predictions.decoder.bias", DType::Float32, {2}, other.data()}});
  EXPECT_THAT([&] { import_weights(in("w"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("are the same parameter, but differ")));
  write_safetensors(in("w"), {{"x", DType::Int32, {2}, whole.data()}});
  EXPECT_THAT([&] { import_weights(in("w"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("tensor 'x' is int32")));
  std::ofstream(in("w")) << "no such thing";
  EXPECT_THROW(import_weights(in("w"), in("b")), Error);
  EXPECT_FALSE(fs::exists(in("b")));
  save("a", {{"x", {2}}}, 1);
  fs::create_directories(folder_ / "taken" / "full");
  EXPECT_THROW(export_weights(in("a"), in("taken")), Error);
  EXPECT_FALSE(fs::exists(in("taken.writing")));
}

TEST_F(WeightsFile, StrangersAreNamed) {
  save("a", {{"known", {2}}, {"stranger", {3}}}, 1);
  const Manifest m = read_manifest(in("a"));
  EXPECT_NO_THROW(refuse_strangers(m, {"known", "stranger", "more"}));
  EXPECT_THAT([&] { refuse_strangers(m, {"known"}); },
              ThrowsMessage<Error>(HasSubstr("holds 'stranger' [3], which the model has not")));
}

TEST_F(WeightsFile, DifferencesAreCountedBitForBit) {
  save("a", {{"w", {4}}, {"only_a", {1}}, {"shaped", {2}}}, 1);
  save("b", {{"w", {4}}, {"only_b", {1}}, {"shaped", {2, 1}}}, 1.25F);
  const auto self = compare_checkpoints(in("a"), in("a"));
  EXPECT_EQ(self.size(), 6U);
  EXPECT_TRUE(all_equal(self));
  EXPECT_THAT(to_string(self), HasSubstr("6 of 6 tensors equal"));
  const auto found = compare_checkpoints(in("a"), in("b"));
  EXPECT_FALSE(all_equal(found));
  EXPECT_EQ(found.size(), 8U);
  const std::string text = to_string(found);
  EXPECT_THAT(text, HasSubstr("largest difference 0.25, in 4 of 4 elements"));
  EXPECT_THAT(text, HasSubstr("only in the first, [1]"));
  EXPECT_THAT(text, HasSubstr("only in the second, [1]"));
  EXPECT_THAT(text, HasSubstr("shape [2] in the first, [2, 1] in the second"));
  save("zero", {{"w", {1}}}, 0.0F);
  save("minus", {{"w", {1}}}, -0.0F);
  const auto zeros = compare_checkpoints(in("zero"), in("minus"));
  EXPECT_EQ(zeros[0].largest, 0);
  EXPECT_FALSE(all_equal(zeros));
}

TEST_F(WeightsFile, ShowNamesRunFilesAndTensors) {
  save("a", {{"w", {4, 2}}}, 1);
  const std::string text = describe_checkpoint(in("a"));
  EXPECT_THAT(text, HasSubstr("step 7; 8 parameters, weights 32 bytes, optimizer states 32 bytes"));
  EXPECT_THAT(text, HasSubstr("position.index          3"));
  EXPECT_THAT(text, HasSubstr("stage-0.safetensors"));
  EXPECT_THAT(text, HasSubstr("[4, 2]            32 bytes  exp_avg\n"));
  fs::remove(folder_ / "a" / "step-00000007" / "stage-0.safetensors");
  EXPECT_THAT([&] { describe_checkpoint(in("a")); },
              ThrowsMessage<Error>(HasSubstr("the checkpoint is damaged")));
}

}  // namespace
}  // namespace hetu
