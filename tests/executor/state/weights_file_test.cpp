#include "executor/state/weights_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "base/error.h"
#include "executor/state/checkpoint.h"
#include "executor/state/checkpoint_report.h"
#include "executor/state/safetensors.h"
#include "net/transport/inproc.h"

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

TEST_F(WeightsFile, ReportsTheProgressOfImportsAndComparisons) {
  save("a", {{kWords, {4, 2}}, {"cls.predictions.bias", {4}}}, 0.1F);
  export_weights(in("a"), in("w"));
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  const ReportProgress note = [&](std::int64_t done, std::int64_t all) {
    told.emplace_back(done, all);
  };
  import_weights(in("w"), in("b"), note);
  EXPECT_EQ(told, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {1, 3}, {2, 3}}));
  told.clear();
  compare_checkpoints(in("b"), in("b"), note);
  EXPECT_EQ(told, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}, {1, 2}}));
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
              ThrowsMessage<Error>(HasSubstr("between 0 and 16777216")));
  write_safetensors(in("y"), {{"bn1.weight", DType::Int64, {}, &count}});
  EXPECT_THAT([&] { import_weights(in("y"), in("b")); },
              ThrowsMessage<Error>(HasSubstr("weights must be float32")));
}

TEST_F(WeightsFile, ReadsOldNamesBuffersAndNarrowTypes) {
  const std::vector<float> words = {1, 2, 3, 4}, bias = {0.5F, -0.5F}, gamma = {3};
  const std::vector<std::int64_t> ids = {0, 1};
  // 1, -2, and the smallest and largest numbers of binary16. The same bits are other numbers in
  // bfloat16.
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
  const auto entries = [this] {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  };
  const auto before = entries();
  EXPECT_THROW(export_weights(in("a"), in("taken")), Error);
  EXPECT_EQ(entries(), before) << "a file beside is left";
}

TEST_F(WeightsFile, AnExportGoesThroughLinks) {
  save("a", {{"x", {2}}}, 1);
  fs::create_symlink("real.safetensors", folder_ / "link");
  EXPECT_EQ(export_weights(in("a"), in("link")), 1);
  EXPECT_TRUE(fs::is_symlink(in("link")));
  EXPECT_EQ(SafetensorsFile(in("real.safetensors")).tensors().size(), 1U);
  fs::create_symlink("/dev/null", folder_ / "nothing");
  EXPECT_EQ(export_weights(in("a"), in("nothing")), 1);
  EXPECT_TRUE(fs::is_character_file(in("nothing")));
}

// Covers headers that the reference implementation refuses, and headers that only the text of the
// format forbids.
TEST_F(WeightsFile, ABadHeaderIsRefused) {
  const auto tensor = [](const std::string& name, const std::string& shape,
                         const std::string& offsets) {
    return fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":{}}})", name, shape,
                       offsets);
  };
  const auto put = [this](const std::string& header, std::size_t bytes) {
    const std::uint64_t length = header.size();
    std::ofstream file(in("w"), std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header << std::string(bytes, '\0');
  };
  const std::string a = tensor("a", "[1]", "[0,4]");
  put("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("b", "[1]", "[4,8]") + "," + a + "," +
          tensor("none", "[0]", "[4,4]") + "}  ",
      8);
  EXPECT_EQ(SafetensorsFile(in("w")).tensors().size(), 3U);
  const std::vector<std::tuple<std::string, std::size_t, std::string>> cases = {
      {"{" + a + "}", 5, "5 bytes follow the header"},
      {"{" + a + "}", 3, "3 bytes follow the header"},
      {"{" + tensor("a", "[1]", "[4,8]") + "}", 8, "begins at byte 4, expected byte 0"},
      {"{" + a + "," + tensor("b", "[1]", "[8,12]") + "}", 12, "'b' begins at byte 8, expected"},
      {"{" + a + "," + tensor("b", "[1]", "[0,4]") + "}", 4, "begins at byte 0, expected byte 4"},
      {"{" + a + "," + tensor("b", "[1]", "[2,6]") + "}", 6, "begins at byte 2, expected byte 4"},
      {"{" + tensor("a", "[1.0]", "[0,4]") + "}", 4, "expected a whole number of 0 or more"},
      {"{" + tensor("a", "[1e0]", "[0,4]") + "}", 4, "expected a whole number"},
      {"{" + tensor("a", "[-1]", "[0,4]") + "}", 4, "expected a whole number of 0 or more, got -1"},
      {"{" + tensor("a", "[true]", "[0,4]") + "}", 4, "expected a whole number"},
      {"{" + tensor("a", "[1]", "[0,4.0]") + "}", 4, "expected a whole number"},
      {"{" + tensor("a", "[1]", "[0,4,4]") + "}", 4, "two data_offsets"},
      {"{" + tensor("a", "1", "[0,4]") + "}", 4, "expected a list as shape"},
      {"{" + tensor("a", "[4611686018427387905,4]", "[0,4]") + "}", 4, "do not fit"},
      {"{" + tensor("a", "[2]", "[0,4]") + "}", 4, "do not fit"},
      {"{" + a + "," + a + "}", 4, "'a' occurs twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "dtype 'f32'"},
      {R"({"__metadata__":{"a":1}})", 0, "from text to text"},
      {R"({"__metadata__":[]})", 0, "from text to text"},
      {" {}", 0, "not a JSON object"},
      {"\xef\xbb\xbf{}", 0, "not a JSON object"},
      {std::string("{}\0", 3), 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {"", 0, "not a JSON object"},
      {"{\"\xff\":" + a.substr(4) + "}", 4, "not that of a safetensors file"},
      {"{\"a\":" + std::string(100000, '[') + "}", 0, "nest deeper than 64"},
  };
  for (const auto& [header, bytes, says] : cases) {
    put(header, bytes);
    EXPECT_THAT([&] { SafetensorsFile file(in("w")); }, ThrowsMessage<Error>(HasSubstr(says)))
        << header.substr(0, 200);
  }
}

TEST_F(WeightsFile, ATensorOfAnotherDtypeIsRefusedOnlyWhereItIsRead) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const std::uint64_t length = header.size();
  std::ofstream out(in("w"), std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << std::string(5, '\0');
  out.close();
  const SafetensorsFile file(in("w"));
  float value = 1;
  file.read(*file.find("a"), &value);
  EXPECT_EQ(value, 0);
  EXPECT_THAT([&] { file.read(*file.find("u"), &value); },
              ThrowsMessage<Error>(HasSubstr("tensor 'u' has dtype U8, which Hetu does not read")));
}

// Writes a safetensors file of a header and zeros.
void write_header(const fs::path& path, const std::string& header, std::size_t bytes) {
  const std::uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << std::string(bytes, '\0');
}

TEST_F(WeightsFile, TensorsOfOtherDtypesMayBeThere) {
  write_header(in("w"),
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
               R"("c":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[7,10]},)"
               R"("d":{"dtype":"BOOL","shape":[2],"data_offsets":[10,12]}})",
               12);
  const WeightReader file(in("w"));
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.read(file.entries()[0]), std::vector<float>{0});
  for (const auto& [number, dtype] : {std::pair{1, "U8"}, {2, "F6_E2M3"}, {3, "bool"}}) {
    EXPECT_FALSE(file.entries()[number].is_weight());
    const WeightReader::Entry& entry = file.entries()[number];
    const std::string says = std::string(" is ") + dtype + "; weights must be";
    EXPECT_THAT([&] { file.read(entry); }, ThrowsMessage<Error>(HasSubstr(says)));
  }
  const SafetensorsFile raw(in("w"));
  std::vector<char> bytes(3);
  EXPECT_THAT([&] { raw.read(*raw.find("b"), bytes.data()); },
              ThrowsMessage<Error>(HasSubstr("tensor 'b' has dtype U8, which Hetu does not read")));
  write_header(in("w"), R"({"a":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT([&] { WeightReader{in("w")}; }, ThrowsMessage<Error>(HasSubstr("has dtype 'X9'")));
}

TEST_F(WeightsFile, ImportDropsWhatModelsComputeThemselves) {
  const std::vector<float> data(4, 1);
  const float low = -1e4F;
  write_safetensors(in("w"),
                    {{"h.0.attn.bias", DType::Float32, {1, 1, 2, 2}, data.data()},
                     {"h.0.attn.masked_bias", DType::Float32, {}, &low},
                     {"layers.0.self_attn.rotary_emb.inv_freq", DType::Float32, {4}, data.data()},
                     {"mine.attn.bias", DType::Float32, {4}, data.data()}});
  const Imported made = import_weights(in("w"), in("a"));
  EXPECT_EQ(made.tensors, 1);
  EXPECT_EQ(made.dropped, 3);
  EXPECT_EQ(weight("a", "mine.attn.bias"), data);
}

class WeightShardsTest : public WeightsFile {
 protected:
  void SetUp() override {
    WeightsFile::SetUp();
    write_safetensors(in("one.safetensors"), {{"a", DType::Float32, {2}, first_}});
    write_safetensors(in("two.safetensors"),
                      {{"b", DType::Float32, {2}, second_}, {"c", DType::Float32, {1}, first_}});
  }
  void index(const std::string& text) { std::ofstream(in("model.safetensors.index.json")) << text; }
  void refused(const std::string& says) {
    EXPECT_THAT([&] { WeightReader{folder_.string()}; }, ThrowsMessage<Error>(HasSubstr(says)));
  }

  const float first_[2] = {1, 2}, second_[2] = {3, 4};
  const std::string good_ = R"({"metadata":{"total_size":20},"weight_map":{"a":"one.safetensors",)"
                            R"("b":"two.safetensors","c":"two.safetensors"}})";
};

TEST_F(WeightShardsTest, AreReadThroughTheIndexOrItsFolder) {
  index(good_);
  for (const std::string& path : {folder_.string(), in("model.safetensors.index.json")}) {
    fs::remove_all(in("ckpt"));
    EXPECT_EQ(import_weights(path, in("ckpt")).tensors, 3);
    EXPECT_EQ(weight("ckpt", "a"), (std::vector<float>{1, 2}));
    EXPECT_EQ(weight("ckpt", "b"), (std::vector<float>{3, 4}));
    EXPECT_EQ(weight("ckpt", "c"), std::vector<float>{1});
  }
  write_safetensors(in("model.safetensors"), {{"whole", DType::Float32, {2}, first_}});
  EXPECT_EQ(WeightReader(folder_.string()).entries().size(), 1U);
}

TEST_F(WeightShardsTest, AreNotFoundAmongCheckpoints) {
  index(good_);
  import_weights(folder_.string(), in("ckpt"));
  EXPECT_THAT([&] { WeightReader(in("ckpt")); },
              ThrowsMessage<Error>(HasSubstr("(step-00000000), not a weight file; write one with "
                                             "`hetu checkpoint export")));
}

TEST_F(WeightShardsTest, AreRefusedInOneLine) {
  refused("has neither model.safetensors nor model.safetensors.index.json");
  std::ofstream(in("pytorch_model.bin")) << "x";
  refused("does not read its pytorch_model.bin, a pickle: save the model as safetensors");
  index("\xFF\xFE{");
  refused("model.safetensors.index.json: is not JSON in UTF-8 (at byte 1)");
  for (const char* text : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", "3"}) {
    index(text);
    refused("has no weight_map from tensors to files");
  }
  for (const char* file :
       {R"("../one.safetensors")", R"("/etc/passwd")", R"("")", R"("..")", "3", "{}", "[[]]"}) {
    index(std::string(R"({"weight_map":{"a":)") + file + "}}");
    refused("tensor 'a' is in ");
  }
  index(R"({"weight_map":{"a":"three.safetensors"}})");
  refused("three.safetensors: cannot be opened: No such file");
  index(R"({"weight_map":{"a":"two.safetensors"}})");
  refused("two.safetensors: has no tensor 'a', which ");
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  refused("two.safetensors: has a tensor 'c', which ");
  const std::string deep(1'000'000, '[');
  index(R"({"weight_map":{"a":)" + deep + std::string(deep.size(), ']') + "}}");
  refused("brackets nest deeper than 64");
}

TEST_F(WeightsFile, StrangersAreNamed) {
  save("a", {{"known", {2}}, {"stranger", {3}}}, 1);
  const Manifest m = read_manifest(in("a"));
  EXPECT_NO_THROW(check_parameter_names(m, {"known", "stranger", "more"}));
  EXPECT_THAT(
      [&] { check_parameter_names(m, {"known"}); },
      ThrowsMessage<Error>(HasSubstr("holds 'stranger' [3], which the model does not have")));
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
