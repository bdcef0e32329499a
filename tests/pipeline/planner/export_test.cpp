// Plans that go to other systems and come back, and the texts of Megatron-LM's layouts.
#include "pipeline/planner/export.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/planner/import.h"
#include "pipeline/planner/megatron_layout.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- layouts and blocks ----

TEST(MegatronLayout, ExpandsRepetitions) {
  // the example of Megatron-LM's documentation: 61 layers, 16 workers with 2 stages each
  const MegatronLayout layout = parse_megatron_layout("Et*3|(tt|)*29,m|L");
  ASSERT_EQ(layout.size(), 32U);
  EXPECT_EQ(layout[0], "Ettt");
  EXPECT_EQ(layout[29], "tt");
  EXPECT_EQ(layout[30], "m");
  EXPECT_EQ(layout[31], "L");
  EXPECT_THAT(parse_megatron_layout("E(t|)*2t*2L"), ElementsAre("Et", "t", "ttL"));
  EXPECT_THAT(parse_megatron_layout("Et|*1tL"), ElementsAre("Et", "tL"));
  EXPECT_EQ(to_text({"Ettt", "tt", "tL"}), "Et*3|tt|tL");
}

TEST(MegatronLayout, RefusesWhatItCannotRead) {
  const auto refused = [](const std::string& text, const std::string& says) {
    EXPECT_THAT([&] { parse_megatron_layout(text); }, ThrowsMessage<Error>(HasSubstr(says)))
        << text;
  };
  refused("", "stage 0 of 1 is empty");
  refused("Et||tL", "stage 1 of 3 is empty");
  refused("Et|tL|", "stage 2 of 3 is empty");
  refused("Et|xL", "unknown letter 'x'");
  refused("Et |tL", "unknown letter ' '");
  refused("tE|tL", "expected one E, at the beginning");
  refused("Et|tLt", "expected one L, at the end");
  refused("Et|EtL", "expected one E");
  refused("Et*|tL", "'*' needs a number");
  refused("E(t|)2L", "')' needs '*'");
  refused("E(t|*2L", "'(' without ')'");
  refused("Et)*2L", "')' without '('");
  refused("E((t)*2|)*2L", "'(' within '('");
  refused("Et*99999999999999999999|L", "more than 65536 letters");
  refused("E(t*60000)*60000L", "more than 65536 letters");
}

TEST(ModelBlocks, StatesTheContentOfEachBlock) {
  const auto parsed = [](const std::string& text, int blocks) {
    return parse_model_blocks(text, blocks, "--blocks-are");
  };
  EXPECT_THAT(parsed("embedding,layers,head", 4), ElementsAre("E", "t", "t", "L"));
  EXPECT_THAT(parsed("layers", 3), ElementsAre("Et", "t", "tL"));
  EXPECT_THAT(parsed("layers", 1), ElementsAre("EtL"));
  EXPECT_THAT(parsed("layers*2,mtp", 3), ElementsAre("Et", "t", "mL"));
  EXPECT_THAT(parsed("embedding,layers,mtp*2,head", 6), ElementsAre("E", "t", "t", "m", "m", "L"));
  const auto refused = [&](const std::string& text, int blocks, const std::string& says) {
    EXPECT_THAT([&] { parsed(text, blocks); }, ThrowsMessage<Error>(HasSubstr(says))) << text;
  };
  refused("embedding,layer", 4, "'layer' is not a kind of block");
  refused("layers,embedding", 4, "in this order");
  refused("layers,layers", 4, "at most once");
  refused("embedding,head", 2, "add 'layers'");
  refused("layers*3", 4, "this describes 3 blocks, but the costs have 4");
  refused("embedding,layers,head", 2, "this describes 3 blocks, but the costs have 2");
  refused("embedding*2,layers", 4, "a model has one embedding");
  refused("layers*0", 4, "expected a whole number");
}

TEST(MegatronLayout, NamesTheFirstBlocksOfACut) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int blocks = 3 + static_cast<int>(random() % 9);
    std::string are = random() % 2 == 0 ? "embedding,layers" : "layers";
    if (random() % 2 == 0) are += ",head";
    const ModelBlocks content = parse_model_blocks(are, blocks, "");
    std::vector<int> first = {0};
    for (int b = 1; b < blocks; ++b)
      if (random() % 3 == 0) first.push_back(b);
    const std::string text = to_text(layout_of(content, first));
    EXPECT_EQ(first_blocks_of(parse_megatron_layout(text), content), first) << text;
  }
}

TEST(MegatronLayout, RefusesStagesThatSplitABlock) {
  const ModelBlocks layers = parse_model_blocks("layers", 4, "");
  const auto refused = [&](const std::string& text, const std::string& says) {
    EXPECT_THAT([&] { first_blocks_of(parse_megatron_layout(text), layers); },
                ThrowsMessage<Error>(HasSubstr(says)))
        << text;
  };
  refused("Et|ttL", "it has 3 transformer layers (t), but the costs have 4");
  refused("Et|tttmL", "it has 1 layers of multi-token prediction (m), but the costs have 0");
  refused("E|ttttL", "stage 1 begins within block 0 of the costs, which is 'Et'");
  refused("Ett|tt|L", "stage 2 begins within block 3 of the costs, which is 'tL'");
  const ModelBlocks with_mtp = parse_model_blocks("layers,mtp", 3, "");
  EXPECT_THAT([&] { first_blocks_of(parse_megatron_layout("Etm|tL"), with_mtp); },
              ThrowsMessage<Error>(HasSubstr("follow all others")));
}

// ---- plans ----

// Costs of a micro-batch of `size` samples, drawn by a seed.
Costs drawn(unsigned seed, int blocks, int size) {
  std::mt19937 random(seed);
  const auto real = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  Costs costs;
  costs.per_worker = false;
  costs.unit = "ms";
  for (int b = 0; b < blocks; ++b) {
    StageCost c;
    for (double* time : {&c.forward, &c.input_grad, &c.weight_grad, &c.recompute})
      *time = real(0.5, 2) * (0.2 + 0.8 * size);
    c.bytes_out = real(10, 1000) * size;
    c.activation_bytes = real(100, 1000) * size;
    c.weight_bytes = real(400, 2000);
    c.gradient_bytes = real(100, 500);
    costs.blocks.push_back({c, 1});
  }
  return costs;
}

struct Case {
  unsigned seed;
  int blocks, workers;
  bool unequal;
};

class Exchange : public testing::TestWithParam<Case> {
 protected:
  Exchange() {
    const Case& c = GetParam();
    request_.global_batch = 16;
    request_.micro_batch_sizes = {1, 2};
    request_.machines.speed.assign(c.workers, 1);
    request_.machines.link = {.latency = 0.1, .bandwidth = 2000};
    if (c.unequal) {
      request_.machines.speed.front() = 0.5;
      request_.machines.hosts.assign(c.workers, "a");
      request_.machines.hosts.back() = "b";
      request_.machines.pairs = {{0, 1, 0.5, 1000}};
    }
  }

  Costs costs(int size) const { return drawn(GetParam().seed, GetParam().blocks, size); }

  PlanAnswer answer(const std::vector<std::string>& methods) {
    request_.methods = methods;
    PlanAnswer a = find_plan(request_, [this](int size) { return costs(size); });
    EXPECT_TRUE(a.best.has_value());
    return a;
  }

  // Returns the file of an export with this suffix.
  std::string text(const std::string& system, const PlanAnswer& answer,
                   const std::string& suffix) const {
    for (const ExportedFile& f : exported(system, answer, request_, kBlocks))
      if (f.name.size() > suffix.size() && f.name.ends_with(suffix)) return f.text;
    ADD_FAILURE() << system << " wrote no " << suffix;
    return "";
  }

  // Expects that a plan that came back is predicted as the planner predicts it.
  void expect_same(const std::string& given, const PlanAnswer& answer) const {
    const CostsOfSize of_size = [this](int size) { return costs(size); };
    const PlanChoice back =
        predicted(parse_given_plan(given, request_, of_size, kBlocks), request_, of_size);
    const PlanChoice& best = *answer.best;
    EXPECT_EQ(back.cut.first_block, best.cut.first_block) << given;
    EXPECT_EQ(back.assignment, best.assignment) << given;
    EXPECT_EQ(back.cut.step_time, best.cut.step_time) << given;
    EXPECT_EQ(back.cut.peak_bytes, best.cut.peak_bytes) << given;
    EXPECT_EQ(back.cut.busy, best.cut.busy) << given;
    PlanConfiguration named = back.configuration;
    named.method = best.configuration.method;  // that of a file is the file's name
    EXPECT_EQ(to_text(named), to_text(best.configuration)) << given;
  }

  static constexpr const char* kBlocks = "embedding,layers,head";
  PlanRequest request_;
  const TemporaryFolder folder_;
};

// Returns the part of a text after `before`, up to `end`.
std::string between(const std::string& text, const std::string& before, const char* end) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const std::size_t from = at + before.size();
  return text.substr(from, text.find(end, from) - from);
}

// Returns the further arguments that a script of Megatron-LM names for its check.
std::string check_of(const std::string& script) {
  return between(script, "--compare-with 'megatron:megatron.sh", "'");
}

TEST_P(Exchange, ReturnsFromMegatronUnchanged) {
  for (const std::vector<std::string>& methods :
       {std::vector<std::string>{"1f1b"}, {"interleaved-1f1b"}}) {
    request_.stages = methods[0] == "1f1b" ? std::vector<int>{} : std::vector<int>{2};
    const PlanAnswer a = answer(methods);
    const std::string path = folder_ / "megatron.sh";
    const std::string script = text("megatron", a, ".sh");
    write_text(path, script);
    expect_same(fmt::format("megatron:{}{}", path, check_of(script)), a);
  }
}

TEST_P(Exchange, ReturnsFromTorchUnchanged) {
  for (const char* method : {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2",
                             "zb-v", "v-half", "hanayo", "interleaved-zb", "dualpipev"}) {
    request_.stages = {2};
    const PlanAnswer a = answer({method});
    const std::string path = folder_ / "torch.csv";
    write_text(path, text("torch", a, ".csv"));
    const json table = json::parse(text("torch", a, ".json"));
    const std::string check = table["compare_with"];
    ASSERT_EQ(check.substr(0, 15), "torch:torch.csv") << method;
    expect_same(fmt::format("torch:{}{}", path, check.substr(15)), a);
  }
}

TEST_P(Exchange, ReturnsRecomputeUnchanged) {
  request_.stages = {2};
  const CostsOfSize of_size = [this](int size) { return costs(size); };
  PlanAnswer a = answer({"1f1b"});
  for (double limit = 40000; !a.best->configuration.sizes.with_recompute; limit *= 0.95) {
    request_.machines.memory_bytes.assign(GetParam().workers, limit);
    a = find_plan(request_, of_size);
    ASSERT_TRUE(a.best.has_value()) << "no plan with recompute before nothing fits, at " << limit;
  }
  const std::string script = folder_ / "megatron.sh", csv = folder_ / "torch.csv";
  write_text(script, text("megatron", a, ".sh"));
  EXPECT_THAT(text("megatron", a, ".sh"), HasSubstr("--recompute-granularity full"));
  expect_same("megatron:" + script + check_of(text("megatron", a, ".sh")), a);
  write_text(csv, text("torch", a, ".csv"));
  expect_same(
      "torch:" + csv +
          json::parse(text("torch", a, ".json"))["compare_with"].get<std::string>().substr(15),
      a);
  EXPECT_EQ(
      json::parse(text("deepspeed", a, ".json"))["pipeline"]["activation_checkpoint_interval"], 1);
}

TEST_P(Exchange, NeverPredictsAPlanBelowTheBound) {
  const PlanAnswer a = answer({"1f1b"});
  const CostsOfSize of_size = [this](int size) { return costs(size); };
  const int layers = GetParam().blocks - 2;
  for (int first = 1; first < layers; ++first) {
    const std::string given = fmt::format("megatron:Et*{}|t*{}L --micro-batch-size 2 --pipelines 1",
                                          first, layers - first);
    const PlanChoice p =
        predicted(parse_given_plan(given, request_, of_size, kBlocks), request_, of_size);
    EXPECT_GE(p.cut.step_time, a.bound * (1 - 1e-9)) << given;
  }
}

TEST_P(Exchange, NamesEveryModuleOfTorchtitanOnce) {
  for (const char* method : {"1f1b", "zb-h1", "zb-v", "v-half"}) {
    request_.stages = {2};
    const PlanAnswer a = answer({method});
    const std::string stages = text("torchtitan", a, ".py");
    int layers = 0;
    for (std::size_t at = stages.find("\"layers."); at != std::string::npos;
         at = stages.find("\"layers.", at + 1))
      EXPECT_EQ(stages.find(fmt::format("\"layers.{}\"", layers++)), at) << stages;
    EXPECT_EQ(layers, GetParam().blocks - 2);
    EXPECT_LT(stages.find("\"tok_embeddings\""), stages.find("\"layers.0\""));
    EXPECT_THAT(stages, HasSubstr("\"norm\", \"lm_head\"]"));
    const std::string flags = text("torchtitan", a, ".sh");
    const bool own = std::string(method) == "zb-h1" || std::string(method) == "v-half";
    EXPECT_EQ(flags.find("_schedule_csv torchtitan.csv") != std::string::npos, own) << flags;
    const char* name = std::string(method) == "1f1b"    ? " 1F1B\n"
                       : std::string(method) == "zb-h1" ? " PipelineScheduleMulti\n"
                                                        : " ZBVZeroBubble\n";
    EXPECT_THAT(flags, HasSubstr(std::string("pipeline_parallel_schedule") + name));
  }
}

TEST_P(Exchange, GivesDeepSpeedTheBatchAndTheCut) {
  const PlanAnswer a = answer({"1f1b"});
  const json config = json::parse(text("deepspeed", a, ".json"));
  EXPECT_EQ(config["train_batch_size"], 16);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"].get<int>() *
                config["gradient_accumulation_steps"].get<int>() * a.best->configuration.pipelines,
            16);
  const std::string bounds = between(text("deepspeed", a, ".py"), "BOUNDS = [", "]");
  EXPECT_EQ(bounds,
            fmt::format("{}, {}", fmt::join(a.best->cut.first_block, ", "), GetParam().blocks));
}

TEST_P(Exchange, ListsTheDevicesInTheOrderOfRanks) {
  const PlanAnswer a = answer({"1f1b"});
  const std::string list = text("devices", a, ".txt");
  const int pipelines = a.best->configuration.pipelines;
  const int stages = static_cast<int>(a.best->lowered.workers.size());
  std::string expected;
  for (int s = 0; s < stages; ++s) {
    for (int d = 0; d < pipelines; ++d) {
      const int worker = a.best->assignment[d * stages + s];
      // with unequal workers, the last one is GPU 0 of host b
      const bool last = GetParam().unequal && worker == GetParam().workers - 1;
      expected += last ? "b:0\n" : fmt::format("{}:{}\n", GetParam().unequal ? "a" : "gpu", worker);
    }
  }
  EXPECT_EQ(list.substr(list.find('\n', list.rfind('#')) + 1), expected);
}

TEST_P(Exchange, RefusesPlansThatASystemCannotRun) {
  const auto refused = [&](const PlanAnswer& a, const char* system, const char* says) {
    EXPECT_THAT([&] { exported(system, a, request_, kBlocks); },
                ThrowsMessage<Error>(HasSubstr(says)))
        << system;
  };
  request_.stages = {2};
  const PlanAnswer v = answer({"zb-v"});
  refused(v, "megatron", "add --methods 1f1b,interleaved-1f1b");
  refused(v, "deepspeed", "add --methods 1f1b");
  const PlanAnswer chimera = answer({"chimera"});
  refused(chimera, "torch", "one copy of each stage");
  refused(chimera, "torchtitan", "one copy of each stage");
  refused(chimera, "excel", "known systems: megatron, torch, torchtitan, deepspeed, devices");
  EXPECT_THAT([&] { exported("megatron", answer({"1f1b"}), request_, ""); },
              ThrowsMessage<Error>(HasSubstr("needs --blocks-are")));
  request_.machines.memory_bytes.assign(GetParam().workers, 1);
  const PlanAnswer none = find_plan(request_, [this](int size) { return costs(size); });
  refused(none, "devices", "no plan fits");
}

TEST_P(Exchange, RefusesPlansThatItCannotRead) {
  request_.methods = {"1f1b"};
  const CostsOfSize of_size = [this](int size) { return costs(size); };
  const auto refused = [&](const std::string& text, const char* says) {
    EXPECT_THAT([&] { parse_given_plan(text, request_, of_size, kBlocks); },
                ThrowsMessage<Error>(HasSubstr(says)))
        << text;
  };
  const std::string layout = fmt::format("megatron:Et|t*{}L ", GetParam().blocks - 3);
  refused("deepspeed:x", "expected megatron:LAYOUT");
  refused("megatron:", "add --micro-batch-size B");
  refused("megatron: --micro-batch-size 2", "expected a layout");
  refused(layout, "add --micro-batch-size B");
  refused(layout + "--micro-batch-size 3 --pipelines 1", "don't divide the global batch of 16");
  refused(layout + "--micro-batch-size x", "--micro-batch-size: expected a whole number");
  refused(layout + "--micro-batch-size", "needs a value");
  refused(layout + "--micro-batch 2", "unknown argument '--micro-batch'; known arguments: ");
  refused(layout + "--micro-batch-size 2 --pipelines 9", "but there are");
  refused(layout + "--micro-batch-size 2 --pipelines 1 --ranks 0,0", "expected 2 different");
  refused(layout + "--micro-batch-size 2 --pipelines 1 --ranks 0,99", "expected 2 different");
  refused(layout + "--micro-batch-size 2 --global-batch-size 32", "but --global-batch is 16");
  refused(layout + "--micro-batch-size 2 --tensor-model-parallel-size 2", "pipelines and data");
  refused(layout + "--micro-batch-size 2 --recompute-activations", "only --recompute-granularity");
  refused(layout + "--micro-batch-size 2 --decoder-first-pipeline-num-layers 1", "is not read");
  refused(layout + "--micro-batch-size 2 --pipeline-model-parallel-size 4", "doesn't fit");
  refused("megatron:Et|tL --micro-batch-size 2 --pipelines 1", "it has 2 transformer layers");
  refused("megatron: --micro-batch-size 2 --pipeline-model-parallel-size 97", "can't be divided");
  refused("torch:", "expected a FILE.csv");
  refused("torch:missing.csv", "missing.csv");
  const std::string csv = folder_ / "plan.csv";
  write_text(csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  refused("torch:" + csv + " --pipelines 1", "add --partition");
  refused("torch:" + csv + " --pipelines 1 --partition 1,1", "expected 2 numbers above 0");
  refused("torch:" + csv + " --pipelines 1 --partition 1,x", "--partition: expected a whole");
}

INSTANTIATE_TEST_SUITE_P(Grid, Exchange,
                         testing::Values(Case{1, 9, 2, false}, Case{2, 9, 4, false},
                                         Case{3, 7, 3, true}, Case{4, 8, 4, true}));

}  // namespace
}  // namespace hetu
