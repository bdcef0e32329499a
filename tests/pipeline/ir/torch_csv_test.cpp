// Tests plans that the classes of torch.distributed.pipelining wrote (make_torch_plans.py). They
// are read, verified and predicted, and they equal Hetu's own plans.
#include "pipeline/ir/torch_csv.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/random_plans.h"

namespace hetu {
namespace {

constexpr const char* kFolder = "tests/pipeline/torch";

// A name such as ScheduleZBVZeroBubble_4x2_8 holds the class, workers x stages per worker, and
// micro-batches.
struct File {
  std::string path, name;
  Sizes sizes;
  bool lowered = false;
};

std::vector<File> files() {
  std::vector<File> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".csv") continue;
    const std::string stem = entry.path().stem().string();
    File file{entry.path().string(), stem.substr(0, stem.find('_')), {}, false};
    const std::size_t at = stem.find('_') + 1, x = stem.find('x', at), end = stem.find('_', x);
    file.sizes.stages = std::stoi(stem.substr(at, x - at));
    file.sizes.chunks = std::stoi(stem.substr(x + 1, end - x - 1));
    file.sizes.micro_batches = std::stoi(stem.substr(end + 1));
    file.lowered = stem.find("_lowered") != std::string::npos;
    found.push_back(file);
  }
  std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.path < b.path; });
  return found;
}

std::string refusal(const Schedule& s) {
  try {
    verify(s);
  } catch (const Error& e) {
    EXPECT_EQ(exit_status(e.code()), 1);
    return e.what();
  }
  return "";
}

// The package's table for 1F1B lacks 3F0: its executing loop does not use the table.
bool known_wrong(const File& f) { return f.name == "Schedule1F1B"; }

TEST(TorchPlans, AreReadProvedAndPredicted) {
  int count = 0;
  for (const File& f : files()) {
    SCOPED_TRACE(f.path);
    const Schedule s = read_plan(
        f.path,
        {.stages = f.sizes.stages, .micro_batches = known_wrong(f) ? 0 : f.sizes.micro_batches});
    EXPECT_EQ(s.chunks, f.sizes.chunks);
    EXPECT_EQ(model_stages(s), f.sizes.stages * f.sizes.chunks);
    EXPECT_EQ(is_lowered(s), f.lowered);
    if (known_wrong(f)) {
      EXPECT_EQ(refusal(s),
                "plan is incomplete: 3F0 is missing:\n"
                "  worker 3 never runs 3F0\n"
                "  worker 3 at cell 11: 3F6 is the only instruction of micro-batch 6");
      continue;
    }
    EXPECT_EQ(refusal(s), "");
    const Simulation run = simulate(s, Costs{});
    EXPECT_DOUBLE_EQ(run.ideal, 3.0 * f.sizes.micro_batches);
    EXPECT_GE(run.makespan, run.ideal);
    EXPECT_LT(run.bubble_fraction, 0.5);
    ++count;
  }
  EXPECT_GE(count, 13);
}

TEST(TorchPlans, LoweredOnesHoldTheComputeOfTheOthers) {
  for (const File& f : files()) {
    if (!f.lowered) continue;
    SCOPED_TRACE(f.path);
    std::string plain = f.path;
    plain.erase(plain.find("_lowered"), 8);
    auto lowered = rows_of(read_plan(f.path));
    for (auto& row : lowered)
      row.erase(std::remove_if(row.begin(), row.end(),
                               [](const Instr& i) { return !is_compute(i.kind); }),
                row.end());
    EXPECT_EQ(lowered, rows_of(read_plan(plain)));
  }
}

// Under the name of a PyTorch class, Hetu must generate the plan that the class wrote.
TEST(TorchPlans, AreOurs) {
  int count = 0;
  for (const File& f : files()) {
    const Method* method = find_method(f.name);
    if (f.lowered || known_wrong(f) || method == nullptr) continue;
    SCOPED_TRACE(f.path);
    ASSERT_TRUE(is_legal(*method, f.sizes));
    const Schedule theirs = read_plan(f.path);
    Sizes sizes = f.sizes;  // its pairs run as one
    sizes.pair_semantics = f.name == "ScheduleDualPipeV" ? "atomic" : "split";
    const Schedule ours = generate(f.name, sizes);
    std::vector<std::vector<Instr>> rows = rows_of(theirs);
    for (auto& row : rows)  // the tables of classes with one stage per worker end with a sum
      row.erase(std::remove_if(row.begin(), row.end(),
                               [](const Instr& i) { return !is_compute(i.kind); }),
                row.end());
    EXPECT_EQ(listing(with_rows(ours, rows)), listing(with_rows(ours, rows_of(ours))));
    EXPECT_EQ(theirs.placements, ours.placements);
    ++count;
  }
  EXPECT_EQ(count, 7);
}

// The pairs run separately on request, in the time of Hetu's own plan.
TEST(TorchPlans, PairsRunAsOneOrAsTwo) {
  Costs costs;
  costs.stages = {{.forward = 1, .input_grad = 1.2, .weight_grad = 0.7}};
  int count = 0;
  for (const File& f : files()) {
    if (f.name != "ScheduleDualPipeV" || f.lowered) continue;
    for (const char* semantics : {"split", "atomic"}) {
      Sizes sizes = f.sizes;
      sizes.pair_semantics = semantics;
      const Schedule theirs = read_plan(f.path, {.pair_semantics = semantics});
      const Schedule ours = generate(f.name, sizes);
      EXPECT_EQ(refusal(theirs), "");
      EXPECT_EQ(listing(with_rows(ours, rows_of(theirs))), listing(with_rows(ours, rows_of(ours))));
      EXPECT_EQ(simulate(theirs, costs).makespan, simulate(ours, costs).makespan) << semantics;
      EXPECT_EQ(to_json(parse_plan(to_json(theirs), "f")), to_json(theirs));
      ++count;
    }
    const double one = simulate(read_plan(f.path), costs).makespan;
    const double two = simulate(read_plan(f.path, {.pair_semantics = "split"}), costs).makespan;
    EXPECT_LT(two, one);
  }
  EXPECT_EQ(count, 2);
}

// Returns a text with the names of PyTorch before 2.6: BW is a whole backward, B the gradient of
// the input.
std::string with_old_names(const Schedule& s) {
  std::string text;
  for (const auto& row : rows_of(s)) {
    for (const Instr& i : row) {
      const std::string kind = i.kind == Kind::Backward    ? "BW"
                               : i.kind == Kind::InputGrad ? "B"
                                                           : kind_name(i.kind);
      text += fmt::format("{}{}{}{}", &i == &row.front() ? "" : ",", i.stage, kind, i.micro);
    }
    text += '\n';
  }
  return text;
}

TEST(TorchPlans, OldNamesAreRead) {
  for (const char* method : {"1f1b", "zb-h1", "zb-v", "interleaved-zb"}) {
    SCOPED_TRACE(method);
    Sizes sizes;
    sizes.stages = 4;
    sizes.micro_batches = 8;
    const Schedule ours = generate(method, sizes);
    EXPECT_EQ(rows_of(parse_plan(with_old_names(ours), "old")), rows_of(ours));
  }
  // Covers messages, whose names also end in B.
  EXPECT_EQ(with_present_names("0RECV_B1,0BW1,0SEND_B1,3B2"), "0RECV_B1,0B1,0SEND_B1,3I2");
  EXPECT_EQ(with_present_names("0RECV_B1,0B1,0SEND_B1"), "0RECV_B1,0B1,0SEND_B1");
  // A single weight gradient that is computed twice does not indicate old names.
  EXPECT_THAT(refusal(parse_plan("0F0,0F1,0B0,0W0,0B1\n", "f")),
              testing::HasSubstr("0W0 occurs twice"));
}

TEST(TorchPlans, LoweringIsTakenBack) {
  for (const File& f : files()) {
    if (!f.lowered) continue;
    SCOPED_TRACE(f.path);
    const Schedule computes = without_lowering(read_plan(f.path));
    EXPECT_EQ(refusal(lower(computes)), "");
    EXPECT_EQ(rows_of(without_lowering(lower(computes))), rows_of(computes));
  }
}

// Returns, by worker, the messages to or from each other worker in order. "F 2 5" is the message of
// stage 2 and micro-batch 5, in the receiver's numbers.
std::map<std::pair<int, int>, std::vector<std::string>> messages(const Schedule& s, bool sent) {
  std::map<std::pair<int, int>, std::vector<std::string>> found;
  const auto rows = rows_of(s);
  for (int w = 0; w < static_cast<int>(rows.size()); ++w) {
    for (const Instr& i : rows[w]) {
      if (sent ? !is_send(i.kind) : !is_recv(i.kind)) continue;
      const bool forward = i.kind == Kind::SendForward || i.kind == Kind::RecvForward;
      const int other = i.stage + (forward == sent ? 1 : -1);
      const int peer = s.placements[other].workers[0];
      found[sent ? std::pair(w, peer) : std::pair(peer, w)].push_back(
          fmt::format("{} {} {}", forward ? "F" : "B", sent ? other : i.stage, i.micro));
    }
  }
  return found;
}

// PyTorch matches messages between two workers by their order, and each send has one wait.
TEST(TorchPlans, WhatItsRuntimeExecutesIsWritten) {
  for (const char* method : {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2",
                             "zb-v", "v-half", "interleaved-zb", "dualpipev"}) {
    SCOPED_TRACE(method);
    Sizes sizes;
    sizes.stages = 4;
    sizes.micro_batches = 8;
    const Schedule plan = generate(method, sizes);
    const std::string text = to_torch_csv(lower(plan));
    const Schedule again = parse_plan(text, "torch");
    EXPECT_EQ(refusal(again), "");
    EXPECT_EQ(rows_of(without_lowering(again)), rows_of(plan));
    EXPECT_EQ(messages(again, true), messages(again, false));
    const auto count = [&](const std::string& word) {
      std::size_t n = 0;
      for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++n;
      return n;
    };
    EXPECT_EQ(count("WAIT_SEND_F"), count("SEND_F") / 2);
    EXPECT_EQ(count("WAIT_SEND_B"), count("SEND_B") / 2);
    EXPECT_EQ(count("WAIT_REDUCE_GRAD"), plan.placements.size());
    EXPECT_EQ(count("UPDATE"), 0u);
  }
}

TEST(TorchPlans, WhatItsRuntimeLacksIsRefused) {
  const auto writing = [](const char* method, bool lowered) {
    Sizes sizes;
    sizes.stages = 4;
    sizes.micro_batches = 8;
    const Schedule plan = generate(method, sizes);
    to_torch_csv(lowered ? lower(plan) : plan);
  };
  using testing::HasSubstr;
  using testing::ThrowsMessage;
  EXPECT_THAT([&] { writing("chimera", true); }, ThrowsMessage<Error>(HasSubstr("several copies")));
  EXPECT_THAT([&] { writing("varuna", true); },
              ThrowsMessage<Error>(HasSubstr("no action such as")));
  EXPECT_THAT([&] { writing("1f1b", false); }, ThrowsMessage<Error>(HasSubstr("add --lowered")));
}

TEST(TorchPlans, WhatItsLoaderAcceptsAndCannotRunIsRefused) {
  const auto bad = [](const char* name) {
    return refusal(read_plan(std::string(kFolder).append("/bad/").append(name)));
  };
  EXPECT_EQ(bad("cyclic.csv"),
            "schedule deadlocks:\n"
            "  worker 0 is at cell 2: 0B0 waits for 1B0\n"
            "  worker 1 is at cell 2: 1F1 waits for 0F1");
  EXPECT_EQ(bad("use_before_receive_lowered.csv"),
            "schedule deadlocks: 1F0 stands before 1RECV_F0 in the row of worker 1:\n"
            "  worker 1 is at cell 1 with messages: 1F0 waits for 1RECV_F0, which is cell 2 with "
            "messages");
}

}  // namespace
}  // namespace hetu
