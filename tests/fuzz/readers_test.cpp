// Random and mutated files for the readers of plans, costs and traces: each is read or refused in
// one line, within bounded memory; what is read can be written, proved or
// refused, and predicted or refused. The DISABLED test does a million; ctest runs it as
// `readers_fuzz_asan` (slow), in a tree with sanitizers.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/text_file.h"
#include "base/trace.h"
#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

// Pieces of which texts are made, in addition to noise.
constexpr const char* kWords[] = {"0",
                                  "1",
                                  "-1",
                                  "7",
                                  "65536",
                                  "1000000",
                                  "268435456",
                                  "2147483647",
                                  "4294967296",
                                  "9223372036854775807",
                                  "18446744073709551616",
                                  "1e9",
                                  "1e308",
                                  "1e999",
                                  "-0.5",
                                  "nan",
                                  "null",
                                  "true",
                                  "[",
                                  "]",
                                  "{",
                                  "}",
                                  "[[[[[[",
                                  ",",
                                  ":",
                                  "\"",
                                  "\\u0000",
                                  "\\n",
                                  "\n",
                                  "\r\n",
                                  "\n\n",
                                  "\xff\xfe",
                                  "\"\"",
                                  "F",
                                  "B",
                                  "I",
                                  "W",
                                  "R",
                                  "0F0",
                                  "1SEND_F0",
                                  "0RECV_B1",
                                  "0UPDATE",
                                  "REDUCE_SCALARS",
                                  "0REDUCE_GRAD:32767",
                                  "(0F1;1B0)OVERLAP_F_B",
                                  "(",
                                  ";",
                                  ")OVERLAP_F_B",
                                  "3UNSHARD",
                                  "0WAIT_SEND_F0",
                                  "\"workers\":",
                                  "\"placements\":",
                                  "\"body\":",
                                  "\"repeat\":2147483647",
                                  "\"shift\":2147483647",
                                  "\"model_stage\":2147483647",
                                  "\"replica\":2147483647",
                                  "\"steps\":2147483647",
                                  "\"micro_batches\":2147483647",
                                  "\"extra_edges\":[[0,2147483647]]",
                                  "\"gradient_buckets\":[2147483647]",
                                  "\"stages\":",
                                  "\"traceEvents\":",
                                  "\"tid\":2147483647",
                                  "\"stage\":2147483646",
                                  "bs,time_f"};

// Most that the process has held resident, in MB.
double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

class Files {
 public:
  explicit Files(std::uint64_t seed) : random_(seed) {
    for (const Method& m : methods()) {
      for (const auto& [p, micros] : {std::pair{1, 2}, {2, 4}, {4, 8}}) {
        const Sizes sizes{.stages = p, .micro_batches = micros};
        if (!is_legal(m, sizes) || seeds_.size() > 120) continue;
        const Schedule s = generate(m.name, sizes), low = lower(s);
        for (const Schedule* plan : {&s, &low}) {
          seeds_.push_back(to_csv(*plan));
          seeds_.push_back(to_json(*plan));
        }
        if (p != 2) continue;
        const Simulation run = simulate(low, Costs{}, {.events = true});
        seeds_.push_back(trace_to_json({run.events, "{\"plan\":" + to_json(low) + "}"}));
        seeds_.push_back(to_json(Costs{}, s));
      }
    }
    for (const char* folder : {"tests/pipeline/torch", "tests/pipeline/torch/bad", "config/costs"})
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".csv") seeds_.push_back(read_text(entry.path().string()));
  }

  std::string next() {
    if (below(8) == 0) return noise();
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t n = 1 + below(3); n > 0; --n) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  std::string noise() {
    std::string text = below(2) ? "{" : "";
    for (std::size_t n = below(60); n > 0; --n)
      text += below(3) ? word() : std::string(1, static_cast<char>(below(256)));
    return text;
  }

  const char* word() { return kWords[below(std::size(kWords))]; }

  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = below(30);
    switch (below(12)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, word());
        break;
      case 3:  // a number or word instead of another
        text.replace(at, std::min(length / 4, text.size() - at), word());
        break;
      case 4:
        text.resize(at);
        break;
      case 5:
        text.insert(at, text.substr(below(text.size() + 1), below(200)));
        break;
      case 6: {
        const std::string& other = seeds_[below(seeds_.size())];
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      case 7: {  // a line away or again
        const std::size_t line = text.find('\n', at), end = text.find('\n', line + 1);
        if (line == std::string::npos || end == std::string::npos) break;
        if (below(2))
          text.erase(line, end - line);
        else
          text.insert(end, text.substr(line, end - line));
        break;
      }
      default: {  // another digit, so that the form stays right
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> seeds_;
};

struct Count {
  int read = 0, refused = 0, proved = 0;
};

// A table of cells with a stage id that nobody meant is refused as a plan, with its place on a line
// of its own.
bool is_refusal(const Error& e) {
  return e.code() == Code::Config || e.code() == Code::InvalidArgument || e.code() == Code::Io ||
         (e.code() == Code::Plan && std::string(e.what()).rfind("plan has a stage ", 0) == 0);
}

// Runs one reader; a refusal is one line, but for plans.
template <class Read>
bool try_read(Count& count, Read&& read) {
  try {
    read();
    ++count.read;
    return true;
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_TRUE(is_refusal(e)) << what;
    if (e.code() != Code::Plan) EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_LT(what.size(), 1000u) << what;
    ++count.refused;
    return false;
  }
}

std::int64_t length(const Schedule& s) {
  std::int64_t n = 0;
  for (const Program& p : s.workers)
    n += static_cast<std::int64_t>(p.prologue.size()) + p.drain.size() +
         static_cast<std::int64_t>(p.body.size()) * p.repeat;
  return n;
}

void use(const Schedule& s, Count& count) {
  const std::string json = to_json(s);
  EXPECT_EQ(to_json(parse_plan(json, "again")), json);
  if (length(s) > 20000) return;
  parse_plan(to_csv(s), "again", {.steps = s.steps, .half_micros = s.half_micros});
  try {
    verify(s);
    simulate(s, Costs{});
    ++count.proved;
  } catch (const Error& e) {
    EXPECT_LE(exit_status(e.code()), 2) << e.what();
  }
}

void fuzz(int files, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Files source(seed);
  Count count;
  const double before = peak_mb();
  for (int n = 0; n < files && !testing::Test::HasFailure(); ++n) {
    const std::string text = source.next();
    SCOPED_TRACE(text);
    Schedule plan;
    PlanFacts facts;
    if (n % 5 == 0) facts = {.stages = n % 4, .micro_batches = n % 3, .replicas = n % 3};
    if (try_read(count, [&] { plan = parse_plan(text, "file", facts); })) {
      try {
        use(plan, count);
      } catch (const Error& e) {
        // A row with no cells has no line of its own in a CSV.
        EXPECT_TRUE(is_refusal(e)) << e.what();
      }
    }
    try_read(count, [&] { parse_costs(text, "file", {1 + n % 32, n % 3}); });
    try_read(count, [&] { trace_from_json(text, "file"); });
  }
  std::printf("%d files: %d read, %d refused, %d proved; %.0f MB more than before\n", files,
              count.read, count.refused, count.proved, peak_mb() - before);
  EXPECT_LT(peak_mb() - before, 1024);
  EXPECT_GT(count.read, files / 50);
}

TEST(Readers, TakeOrRefuseAnyFile) { fuzz(10000, 20240621); }
TEST(Readers, DISABLED_TakeOrRefuseAMillionFiles) { fuzz(1000000, 20240622); }

TEST(Readers, RefuseALineOfSeventyMegabytes) {
  constexpr std::size_t kLong = 70'000'000;
  std::string cells;
  while (cells.size() < kLong) cells += "0F0,0B0,";
  Count count;
  for (const std::string& text :
       {std::string(kLong, 'x'), cells, std::string(kLong, ','), std::string(kLong, '('),
        "{\"method\": \"" + std::string(kLong, 'x'), std::string(kLong, '[').insert(0, "{\"a\":"),
        "{\"" + std::string(kLong, 'k') + "\": 1}"}) {
    try_read(count, [&] { parse_plan(text, "file"); });
    try_read(count, [&] { parse_costs(text, "file", {1, 1}); });
  }
  EXPECT_EQ(count.read, 0);
  try {
    parse_plan(cells, "file");
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "file: line 1 is 70000000 bytes long; a worker's row may have at most 67108864 "
                 "bytes");
  }
}

}  // namespace
}  // namespace hetu
