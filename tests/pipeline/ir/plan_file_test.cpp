#include "pipeline/ir/plan_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;

std::vector<std::vector<Instr>> rows(const Schedule& s) {
  std::vector<std::vector<Instr>> out;
  for (const Program& p : s.workers) out.push_back(unroll(p));
  return out;
}

std::string failure(const std::string& text, const PlanFacts& facts = {}) {
  try {
    parse_plan(text, "f", facts);
  } catch (const Error& e) {
    EXPECT_EQ(exit_status(e.code()), 2);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    EXPECT_LT(std::string(e.what()).size(), 600u);
    return e.what();
  }
  return "";
}

// Returns the facts of a plan that its CSV does not contain.
PlanFacts facts_of(const Schedule& s) {
  PlanFacts facts{.steps = s.steps, .half_micros = s.half_micros};
  for (const Placement& p : s.placements) facts.replicas = std::max(facts.replicas, p.replica + 1);
  if (s.most_versions != 1) facts.version_rule = s.version_rule;
  return facts;
}

bool recomputes(const Schedule& s) {
  const std::vector<Instr> row = unroll(s.workers[0]);
  return std::any_of(row.begin(), row.end(),
                     [](const Instr& i) { return i.kind == Kind::Recompute; });
}

TEST(PlanFile, RoundTripsEveryMethod) {
  for (const Method& m : methods()) {
    for (const int p : {1, 2, 5}) {
      for (const int micros : {1, 4, 9}) {
        Sizes sizes{.stages = p, .micro_batches = micros};
        if (!is_legal(m, sizes)) continue;
        for (const bool recompute : {false, true}) {
          Schedule s = generate(m.name, sizes);
          if (recompute && recomputes(s)) continue;
          if (recompute) s = with_recompute(s);
          EXPECT_EQ(parse_plan(to_json(s), "f"), s);
          // A CSV does not show a replica without a micro-batch.
          if (micros < facts_of(s).replicas) continue;
          const int last = model_stages(s) - 1;
          Schedule csv = parse_plan(to_csv(s), "f", facts_of(s));
          EXPECT_EQ(rows(csv), rows(s));
          EXPECT_EQ(csv.placements, s.placements);
          EXPECT_EQ(csv.micro_batches, s.micro_batches);
          EXPECT_EQ(csv.chunks, s.chunks);
          const Schedule low = lower(
              s,
              {.pipelines = s.version_rule == VersionRule::Wave ? 1 : 2,
               .extra_edges = last > 1 ? std::vector<StagePair>{{0, 2}} : std::vector<StagePair>{},
               .tied = last > 0 ? std::vector<StagePair>{{0, last}} : std::vector<StagePair>{},
               .reduce_scalars = true});
          const Schedule back = parse_plan(to_json(low), "f");
          EXPECT_EQ(back, low);
          verify(back);
          const Schedule plain = parse_plan(to_csv(lower(s)), "f", facts_of(s));
          EXPECT_EQ(rows(plain), rows(lower(s)));
          verify(plain);
        }
      }
    }
  }
}

// Lowering decides how pipelines share a model. Rows without its instructions do not state it.
TEST(PlanFile, RowsWithoutMessagesAreOfOnePipelineEach) {
  for (const char* method : {"pipedream", "hetpipe", "1f1b"}) {
    const Schedule s = generate(method, {.stages = 2, .micro_batches = 4});
    PlanFacts facts = facts_of(s);
    facts.pipelines = 2;
    const Schedule back = parse_plan(to_csv(s), "f", facts);
    EXPECT_EQ(back.lowering.pipelines, 1) << method;
    EXPECT_NO_THROW(verify(back)) << method;
    Lowering how = {.pipelines = 2};
    if (s.version_rule == VersionRule::Wave) how.sharing = ParameterServers{};
    EXPECT_NO_THROW(verify(lower(back, how))) << method;
    EXPECT_EQ(parse_plan(to_csv(lower(s, how)), "f", facts).lowering.pipelines, 2) << method;
  }
}

TEST(PlanFile, ReadsWhatTorchWrites) {
  const Schedule s = parse_plan(
      "0UNSHARD,0F0,,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\r\n1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,"
      "1RESHARD\r\n",
      "f");
  EXPECT_EQ(to_csv(s), "0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F0,1B0,1F1,1B1,1REDUCE_GRAD\n");
  verify(s);
}

TEST(PlanFile, OverlapPairsAreOneCell) {
  const std::string text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
  const Schedule s = parse_plan(text, "f");
  EXPECT_TRUE(s.workers[0].prologue[1].with_next);
  EXPECT_FALSE(s.workers[0].prologue[2].with_next);
  EXPECT_EQ(to_csv(s), text);
  EXPECT_EQ(parse_plan(to_json(s), "f").workers, s.workers);
  verify(s);
}

TEST(PlanFile, ReplicasAndChunksFromIds) {
  // two replicas in opposite directions
  const Schedule s = parse_plan("0F0,3F1,3B1,0B0\n2F1,1F0,1B0,2B1\n", "f", {.replicas = 2});
  EXPECT_EQ(s.placements[3], (Placement{{0}, 1, 1}));
  EXPECT_EQ(s.chunks, 1);
  verify(s);
  // V placement: two chunks per worker
  const Schedule v = parse_plan("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "f");
  EXPECT_EQ(v.chunks, 2);
  EXPECT_DOUBLE_EQ(verify(v).peak_activations[0], 1);
  EXPECT_DOUBLE_EQ(simulate(v, Costs{}).makespan, 2 + 4);
}

// CSV doesn't state which stages are copies of one model. Without --replicas, a plan of copies
// would be refused as incomplete.
TEST(PlanFile, SaysHowManyCopiesACsvLooksLike) {
  for (const char* concat : {"direct", "doubling", "halving"}) {
    for (const int pairs : {1, 2}) {
      if (pairs > 1 && std::string(concat) != "direct") continue;
      const Schedule s =
          generate("chimera", {.stages = 4, .micro_batches = 8, .pairs = pairs, .concat = concat});
      PlanFacts facts = facts_of(s);
      const std::string says = fmt::format(
          "its {} stages run different micro-batches, as {} copies of a model of 4 "
          "stages do; the file doesn't state copies, so give --replicas {}, or",
          8 * pairs, 2 * pairs, 2 * pairs);
      for (const Schedule& one : {s, lower(s, {})}) {
        EXPECT_EQ(failure(to_csv(one), facts), "");
        EXPECT_EQ(failure(to_json(one)), "");
        facts.replicas = 0;
        EXPECT_THAT(failure(to_csv(one), facts), HasSubstr(says));
        facts.replicas = 2 * pairs;
      }
    }
  }
  // A plan that lacks an instruction, and not those of another copy.
  for (const char* text : {"0F0,0F1,0B0,0B1\n1F0,1B0\n", "0F0,0F1,0B0,0B1\n1F1,1B1\n",
                           "0F0,0B0\n1F0,1F1,1B0,1B1\n", "0F0,0B0\n1F1,1B1\n2F0,2B0\n"}) {
    EXPECT_EQ(failure(text), "");
    EXPECT_THROW(verify(parse_plan(text, "f")), Error);
  }
  EXPECT_EQ(failure("0F0,0B0\n1F1,1B1\n", {.replicas = 1}), "");
}

TEST(PlanFile, StatedSizesFindWhatIsCutOff) {
  const std::string whole = to_csv(generate("1f1b", {.stages = 3, .micro_batches = 4}));
  EXPECT_EQ(failure(whole, {.stages = 3, .micro_batches = 4}), "");
  EXPECT_EQ(failure(whole, {.stages = 4}),
            "f: the plan has 3 rows, but 4 workers were given; it needs one row per worker");
  EXPECT_EQ(failure(whole, {.micro_batches = 3}),
            "f: micro-batch id 3 is too large (0F3 of worker 0): there are 3 micro-batches x 1 "
            "step, and ids start at 0");
  EXPECT_THROW(verify(parse_plan(whole, "f", {.micro_batches = 5})), Error);
}

TEST(PlanFile, BadFilesNameLineAndCell) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "f: the file is empty"},
      {" \n\n", "f: the file is empty"},
      {"0F0,0B0\n1F0,1X0\n", "f: line 2, cell 2: unknown action '1X0'"},
      {"0F0,0B\n", "f: line 1, cell 2: action '0B': B needs a micro-batch"},
      {"0F0,(0F1;0B0\n", "f: line 1, cell 2: action '(0F1;0B0'"},
      {"0F0,(0F1)OVERLAP_F_B\n", "a pair is written"},
      {"0F0,(0F1;0SEND_F1)OVERLAP_F_B\n",
       "both instructions of a pair must be compute instructions"},
      {"0F0,0B0\n\n1F0,1B0\n", "f: line 2 is empty"},
      {"0F0,5F0\n", "stage 1 is missing, but stage 5 is present"},
      {"0F0,2000000000F0\n", "stage 1 is missing"},
      {"0F0,0B2000000000\n", "micro-batch id 2000000000 is too large"},
      {"REDUCE_SCALARS\n", "no instruction for any micro-batch"},
      {"{", "f: "},
      {"{}", "f: the plan is empty"},
      {R"({"workers": [{"prologue": ["0F0", "0X0"]}]})",
       "f: worker 0: 'prologue', cell 1: unknown action '0X0'"},
      {R"({"workers": [{"prolog": []}]})",
       "f: worker 0: unknown key 'prolog'; known keys: prologue"},
      {R"({"workers": [{"prologue": [3]}]})", "cell 0: expected a string"},
      {R"({"workers": [{"body": ["0F0"]}]})", "a body with 'repeat' 0"},
      {R"({"workers": [{"body": ["0F0"], "repeat": 2000000000}]})", "the plan has more than"},
      {R"({"workers": [{"body": ["0F0"], "repeat": 2000, "shift": 2000000000}]})", " is too large"},
      {R"({"stages": 2, "workers": [{"prologue": ["0F0"]}]})",
       "'stages' is 2, but there are 1 workers"},
      {R"({"stages": 1e99, "workers": []})", "'stages' must be a whole number"},
      {R"({"version_rule": "x", "workers": []})", "unknown version rule 'x'"},
      {R"({"placements": [{"id": 3}], "workers": []})", "placements must be in the order"},
      {"{\"workers\": " + std::string(100000, '['), "nest deeper"},
      {std::string(100 << 20, 'F'), "104857600 bytes long"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(failure(text), HasSubstr(message));
  EXPECT_EQ(failure("0F0,1F0,2F0\n", {.replicas = 2}),
            "f: 3 stages can't be divided into 2 replicas of one model");
}

TEST(PlanFile, OnlyOneStrategyForSharingWeights) {
  const Schedule waves = generate("hetpipe", {.stages = 2, .micro_batches = 2, .steps = 3});
  Lowering how = {.pipelines = 2, .sharing = ParameterServers{2}};
  const std::string text = to_json(lower(waves, how));
  EXPECT_EQ(parse_plan(text, "f", {}).lowering.sharing, how.sharing);
  const auto with = [&](const std::string& key, const std::string& other) {
    std::string changed = text;
    const std::size_t at = changed.find(key);
    EXPECT_NE(at, std::string::npos);
    return changed.replace(at, key.size(), other);
  };
  EXPECT_THAT(failure(with("\"servers\": true", "\"servers\": true, \"average_weights\": true")),
              HasSubstr("pipelines push to servers or average in groups, not both"));
  EXPECT_THAT(failure(with("\"servers\": true", "\"servers\": false")),
              HasSubstr("'staleness' 2 needs 'servers'"));
}

TEST(PlanFile, AnyMutilatedFileIsReadOrRefused) {
  const std::uint64_t seed = 20240607;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const Schedule s = lower(with_recompute(generate("1f1b", {.stages = 3, .micro_batches = 5})));
  const std::string sources[] = {to_csv(s), to_json(s)};
  int read = 0;
  for (int n = 0; n < 20000; ++n) {
    std::string text = sources[n % 2];
    for (std::uint64_t k = random() % 4 + 1; k > 0; --k) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, random() % 20 + 1);
          break;
        case 1:
          text[at] = static_cast<char>(random());
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), 12));
          break;
        default:
          text[at] = "0123456789,;()[]{}\"\n"[random() % 20];
      }
      if (text.empty()) text = "x";
    }
    try {
      const Schedule back = parse_plan(text, "f");
      ++read;
      verify(back);
      simulate(back, Costs{});
    } catch (const Error& e) {
      ASSERT_NE(e.code(), Code::Internal) << e.what();
    }
  }
  EXPECT_GT(read, 100);
}

TEST(TextFile, WritesBesideAndRenames) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("hetu_text_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "plan.csv";
  write_text(path, "one");
  write_text(path, "two");
  EXPECT_EQ(read_text(path), "two");
  EXPECT_THROW(write_text(folder / "missing" / "x", "a"), Error);
  EXPECT_THROW(read_text(folder), Error);
  EXPECT_THROW(read_text(folder / "none"), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hetu
