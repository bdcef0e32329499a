#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A profile of six blocks, in ms and bytes.
std::string profile() {
  json sizes;
  for (const int size : {1, 2}) {
    json blocks = json::array();
    for (int b = 0; b < 6; ++b)
      blocks.push_back({{"forward", 1.0 * size + 0.2},
                        {"input_grad", 1.0 * size + 0.2},
                        {"weight_grad", 1.0 * size + 0.2},
                        {"recompute", 1.0 * size + 0.2},
                        {"bytes_out", 1000 * size},
                        {"activation_bytes", 1'000'000 * size},
                        {"weight_bytes", 4'000'000},
                        {"gradient_bytes", 1'000'000}});
    sizes[std::to_string(size)] = {{"stages", json::array({json::object()})},
                                   {"blocks", blocks},
                                   {"link", {{"latency", 0.01}, {"bandwidth", 1e6}}}};
  }
  return json{{"micro_batch_sizes", sizes}}.dump();
}

TEST(PlanCommand, ChoosesProvesAndWritesFlags) {
  file("profile.json", profile());
  const Outcome o = hetu("plan --costs profile.json --workers 4 --global-batch 16 -o plan.yml");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(StartsWith("plan: "), HasSubstr("proved for these costs: none of the "),
                           HasSubstr("other configurations, the best one of each method:\n")));
  const std::string flags = read_text(folder() / "plan.yml");
  EXPECT_THAT(flags, AllOf(HasSubstr("\ndevices: pipe_"), HasSubstr("\npipeline: "),
                           HasSubstr("\nbatch-size: "), HasSubstr("\nmicro-batches: "),
                           HasSubstr("\npartition: ")));
  const Outcome found =
      hetu("plan --costs profile.json --workers 4 --global-batch 16 --format json");
  ASSERT_EQ(found.status, 0) << found.err;
  const json answer = json::parse(found.out);
  EXPECT_EQ(answer["gap"], 0.0);
  // 16 samples, 6 blocks: 3 * 1.1 ms of work per sample and block at micro-batches of 2
  const double least = 16 * 6 * 3 * 1.1 / 4;
  EXPECT_GE(answer["plan"]["step_time"].get<double>(), least);
  EXPECT_LE(answer["plan"]["step_time"].get<double>(), 1.5 * least);
}

TEST(PlanCommand, FlagsOfSeveralHostsNameTheClusterFile) {
  file("profile.json", profile());
  const std::string command =
      "plan --costs profile.json --global-batch 8 --methods 1f1b --stages 3 --pipelines 1 "
      "--machines machines.json -o plan.yml";
  const auto flags_of = [&](const json& hosts) {
    json workers = json::array();
    for (const json& host : hosts) workers.push_back({{"host", host}, {"speed", 1}});
    file("machines.json", json{{"workers", workers}}.dump());
    const Outcome o = hetu(command);
    EXPECT_EQ(o.status, 0) << o.err;
    return read_text(folder() / "plan.yml");
  };
  EXPECT_THAT(flags_of({"w1", "w0", "w1"}),
              HasSubstr("Start it with `heturun -c CLUSTER … --config FILE`. Hosts and workers of "
                        "the cluster file, in this order: w1 with 2, w0 with 1.\n"));
  EXPECT_THAT(flags_of({"", "", ""}), HasSubstr("Start it with `heturun -w 3 … --config FILE`.\n"));
}

// 12 blocks of 4 ms on 4 workers: two chunks take 348 ms, and three take 324 ms.
TEST(PlanCommand, SearchesNumbersOfChunksAndNamesThem) {
  std::string blocks;
  for (int b = 0; b < 12; ++b)
    blocks += std::string(b > 0 ? ", " : "") +
              R"({"forward": 4, "input_grad": 4, "weight_grad": 4, "recompute": 4})";
  file("blocks.json",
       R"({"unit": "ms", "samples_per_micro_batch": 1, "blocks": [)" + blocks + "]}");
  const std::string base =
      "plan --costs blocks.json --workers 4 --global-batch 8 --stages 4 --pipelines 1 "
      "--micro-batch-sizes 1 --no-recompute --methods ";
  const Outcome all = hetu(base + "interleaved-1f1b,1f1b");
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("plan: interleaved-1f1b with 3 chunks"),
                             HasSubstr("predicted step: 324.00 ms"),
                             HasSubstr("where a method takes them: 2, 3; --chunks LIST")));
  const Outcome two = hetu(base + "interleaved-1f1b --chunks 2");
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("predicted step: 348.00 ms"),
                             HasSubstr("where a method takes them: 2; --chunks LIST")));
  const std::string others = "interleaved-1f1b,1f1b,gpipe";
  EXPECT_THAT(hetu(base + others).out, HasSubstr("can be faster than "));
  const Outcome each = hetu(base + others + " --each");
  ASSERT_EQ(each.status, 0) << each.err;
  for (const char* method : {"1f1b", "gpipe"})
    EXPECT_THAT(each.out, HasSubstr(std::string("\n  ") + method +
                                    ", 1 pipeline x 4 stages, 8 micro-batches of 1 sample: "
                                    "396.00 ms (+22.2 %)\n"));
}

TEST(PlanCommand, ExplainsAsTextJsonAndPage) {
  file("profile.json", profile());
  const std::string line = "plan --costs profile.json --workers 2 --global-batch 8 --methods 1f1b";
  const Outcome text = hetu(line + " --explain");
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("where a step of"), HasSubstr("\nother machines:\n")));
  EXPECT_THAT(hetu(line).out, Not(HasSubstr("where a step of")));
  const json answer = json::parse(hetu(line + " --explain --format json").out);
  EXPECT_EQ(answer["explanation"]["places"].size(), answer["plan"]["workers"].size());
  const Outcome page = hetu(line + " -o plan.html");
  ASSERT_EQ(page.status, 0) << page.err;
  EXPECT_THAT(page.out, StartsWith("plan: "));
  EXPECT_THAT(read_text(folder() / "plan.html"),
              AllOf(StartsWith("<!doctype html>"), HasSubstr("<svg"), HasSubstr("</html>\n")));
  for (const char* name : {"none.html", "none.yml"}) {
    const Outcome none = hetu(line + " --memory-limit 1KiB -o " + name);
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.out, AllOf(StartsWith("no plan fits"), HasSubstr("would need"),
                                HasSubstr(name + std::string(" is not written"))));
    EXPECT_FALSE(std::filesystem::exists(folder() / name));
  }
}

TEST(PlanCommand, KeepsToTheMemoryOfUnequalWorkers) {
  file("profile.json", profile());
  file("machines.json", R"({"workers": [{"host": "a", "speed": 1, "memory_limit": 3e7},
    {"host": "b", "speed": 0.5, "memory_limit": 1.5e7}, {"host": "b", "speed": 0.5, "memory_limit": 1.5e7}],
    "link": {"latency": 0.5, "bandwidth": 1e5}, "link_in_host": {"latency": 0.01}})");
  const Outcome o =
      hetu("plan --costs profile.json --machines machines.json --global-batch 8 --format json");
  ASSERT_EQ(o.status, 0) << o.err;
  const json plan = json::parse(o.out)["plan"];
  const std::vector<double> limits = {3e7, 1.5e7, 1.5e7};
  for (std::size_t i = 0; i < plan["workers"].size(); ++i)
    EXPECT_LE(plan["peak_bytes"][i].get<double>(), limits[plan["workers"][i].get<int>()]);
  const Outcome flags =
      hetu("plan --costs profile.json --machines machines.json --global-batch 8 --format flags");
  EXPECT_THAT(flags.out, HasSubstr("gpu:0"));
  const Outcome tight =
      hetu("plan --costs profile.json --workers 2 --memory-limit 1MiB --global-batch 8");
  EXPECT_EQ(tight.status, 1);
  EXPECT_THAT(tight.out,
              AllOf(StartsWith("no plan fits the workers' memory"), HasSubstr("would need")));
}

TEST(PlanCommand, PlansAsPipeDream) {
  file(
      "graph.txt",
      "node1 -- Input -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=0.0, "
      "parameter_size=0.000\n"
      "node2 -- A -- forward_compute_time=10.0, backward_compute_time=20.0, "
      "activation_size=1000.0, parameter_size=1000.000\n"
      "node3 -- B -- forward_compute_time=10.0, backward_compute_time=20.0, "
      "activation_size=1000.0, parameter_size=1000000000.000\n"
      "\tnode1 -- node2\n\tnode2 -- node3\n");
  const std::string base = "plan --planner pipedream --costs graph.txt ";
  const Outcome o = hetu(base + "--levels 2:1e9");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1-1"));  // copies of B would exchange a gigabyte
  EXPECT_EQ(hetu(base + "--levels 2:1e9 --format json").out.front(), '{');
  EXPECT_THAT(hetu(base + "--levels 2").err, HasSubstr("expected COUNT:BANDWIDTH"));
  EXPECT_THAT(hetu(base).err, HasSubstr("needs --levels"));
  EXPECT_THAT(hetu("plan --levels 2:1e9").err, HasSubstr("needs --planner pipedream"));
}

TEST(PlanCommand, ExportsThePlan) {
  file("profile.json", profile());
  const std::string base =
      "plan --costs profile.json --workers 4 --global-batch 16 --methods 1f1b --blocks-are "
      "embedding,layers,head ";
  // one file is printed as it is, without the report
  const Outcome one = hetu(base + "--export megatron");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(StartsWith("# Made by `hetu plan` for Megatron-LM: 1f1b"),
                             HasSubstr("\n  --global-batch-size 16\n")));
  const Outcome two = hetu(base + "--export deepspeed,devices");
  EXPECT_THAT(two.out,
              AllOf(StartsWith("==> ds_config.json <==\n{"), HasSubstr("\n==> devices.txt <==\n")));
  const Outcome folders = hetu(base + "--export torch,torchtitan --export-to made/here");
  ASSERT_EQ(folders.status, 0) << folders.err;
  EXPECT_THAT(folders.out, StartsWith("plan: 1f1b"));
  for (const char* name :
       {"torch.csv", "torch_stages.json", "torchtitan.sh", "torchtitan_stages.py"})
    EXPECT_NE(read_text(folder() / "made/here" / name), "") << name;
  const Outcome object = hetu(base + "--export torch --format json");
  EXPECT_EQ(json::parse(object.out)["exports"]["torch.csv"],
            read_text(folder() / "made/here/torch.csv"));
  EXPECT_THAT(hetu(base + "--export torchh").err, HasSubstr("known systems: megatron, torch"));
  EXPECT_THAT(hetu(base + "--export-to made").err, HasSubstr("--export-to needs --export"));
  const Outcome tight = hetu(base + "--export megatron --memory-limit 1MiB");
  EXPECT_EQ(tight.status, 1);
  EXPECT_THAT(tight.out, StartsWith("no plan fits"));
}

TEST(PlanCommand, PredictsThePlanOfAnotherSystem) {
  file("profile.json", profile());
  const std::string base =
      "plan --costs profile.json --workers 4 --global-batch 16 --blocks-are embedding,layers,head ";
  const Outcome o = hetu(base + "--compare-with 'megatron:Et*3|tL --micro-batch-size 2'");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("\ncompared with the plan of megatron: 1f1b, 2 pipelines x 2 "
                                     "stages, 4 micro-batches of 2 samples\n"),
                           HasSubstr(" % above the plan found\n"), HasSubstr("  peak memory: ")));
  const json compared =
      json::parse(hetu(base + "--format json --memory-limit 30MiB --compare-with 'megatron:Et*3|tL "
                              "--micro-batch-size 2'")
                      .out)["compared"];
  EXPECT_GT(compared["excess"].get<double>(), 0);
  EXPECT_EQ(compared["first_block"], json({0, 4}));
  EXPECT_FALSE(compared["fits"].get<bool>());
  // PyTorch's file of a plan is as fast as that plan
  hetu(base + "--methods zb-h1 --stages 2 --export torch --export-to here");
  const json table = json::parse(read_text(folder() / "here/torch_stages.json"));
  const json same = json::parse(hetu(base +
                                     "--methods zb-h1 --stages 2 --format json "
                                     "--compare-with 'torch:here/" +
                                     table["compare_with"].get<std::string>().substr(6) + "'")
                                    .out)["compared"];
  EXPECT_EQ(same["excess"], 0.0);
  const Outcome wrong = hetu(base + "--compare-with 'megatron:Et|xL'");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("add --micro-batch-size B"));
}

TEST(PlanCommand, SaysWhatIsMissingOrWrong) {
  file("profile.json", profile());
  file("costs.json", R"({"stages": [{}, {}]})");
  const std::string base = "plan --costs profile.json --workers 2 ";
  const auto refused = [](const std::string& arguments, const std::string& says) {
    const Outcome o = hetu(arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(says)) << arguments;
    EXPECT_THAT(o.err.substr(0, o.err.size() - 1), Not(HasSubstr("\n"))) << arguments;
  };
  refused("plan --workers 2 --global-batch 4", "needs --costs FILE");
  refused("plan --costs profile.json --global-batch 4", "needs the workers");
  refused(base + "--global-batch 4 --micro-batch-sizes 3", "micro-batches of 3 samples were not");
  refused(base + "--global-batch 5 --micro-batch-sizes 2", "the nearest batch that can is 4");
  refused(base + "--global-batch 4 --methods pipedream", "flush after each step");
  refused(base + "--global-batch 4 --methods chimaera", "chimera");
  refused(base + "--global-batch 4 --memory-limit 3", "must be in bytes");
  refused(base + "--global-batch 4 --bandwidth -1", "--bandwidth");
  refused(base + "--global-batch 4 --blocks 3", "counts the blocks of a CSV");
  refused("plan --costs costs.json --workers 2 --global-batch 4 --memory-limit 1GiB",
          "need costs with activation_bytes");
  file("wrong.json", R"({"micro_batch_sizes": {"two": {"stages": [{}]}}})");
  refused("plan --costs wrong.json --workers 2 --global-batch 4", "numbers of samples");
  file("bare.json", R"({"micro_batch_sizes": {"2": {"stages": [{}]}}})");
  refused("plan --costs bare.json --workers 2 --global-batch 4", "no 'blocks'");
  file("machines.json", R"({"workers": [{"sped": 1}]})");
  refused("plan --costs profile.json --machines machines.json --global-batch 4", "'sped'");
  file("machines.json", R"({"workers": []})");
  refused("plan --costs profile.json --machines machines.json --global-batch 4", "'workers'");
  file("limits.json", R"({"stages": [{"weight_bytes": 1}, {}],
                          "workers": [{"memory_limit": 100}, {"memory_limit": 100}]})");
  refused("plan --costs limits.json --speed 1,1,1 --global-batch 4", "memory limits of 2 workers");
  const Outcome scaled = hetu("plan --costs costs.json --workers 2 --global-batch 4");
  EXPECT_EQ(scaled.status, 0) << scaled.err;
  EXPECT_THAT(scaled.out, AllOf(HasSubstr("note: the costs don't state their micro-batch size"),
                                HasSubstr("note: messages and sums of gradients take no time")));
}

}  // namespace
}  // namespace hetu
