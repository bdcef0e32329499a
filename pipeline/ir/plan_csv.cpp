// Plans as CSV, and the checks that both file forms share. A CSV file has one line per worker with
// the worker's unrolled row, for example for GPipe on 2 workers with 1 micro-batch:
//   0F0,0SEND_F0,0RECV_B0,0B0,0UPDATE
//   1RECV_F0,1F0,1B0,1SEND_B0,1UPDATE
// The file has no header. Sizes, placements and lowering options are derived from the cells
// (Census) and from PlanFacts.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/mix.h"
#include "base/quantity.h"
#include "base/text_file.h"
#include "base/words.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/plan_rows.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/torch_csv.h"

namespace hetu {
namespace {

constexpr std::size_t kMostLine = std::size_t{64} << 20;  // room for millions of cells
constexpr std::string_view kPairEnd = ")OVERLAP_F_B";

[[noreturn]] void wrong(const std::string& origin, const std::string& what) {
  fail(Code::Config, "{}: {}", origin, what);
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Returns true for the cells that torch writes for its own runtime: parameter sharding
// (`3UNSHARD`), and waits for a send or a reduction (`3WAIT_SEND_F0`). They don't change the order
// of compute and messages.
bool is_bookkeeping(std::string_view cell) {
  const auto digits = cell.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  const std::string_view rest = cell.substr(digits);
  const std::string_view name = rest.substr(0, rest.find_last_not_of("0123456789") + 1);
  if (name.size() == rest.size())
    return name == "UNSHARD" || name == "RESHARD" || name == "WAIT_REDUCE_GRAD";
  return name == "WAIT_SEND_F" || name == "WAIT_SEND_B";
}

// A set of micro-batches: their number and the sum of their hashes.
struct MicroSet {
  std::int64_t count = 0;
  std::uint64_t hashes = 0;

  void add(std::int64_t micro) {
    ++count;
    hashes += mix(static_cast<std::uint64_t>(micro) + 1);
  }
  bool operator==(const MicroSet&) const = default;
};

// Results of one pass over all rows: the ids that occur, and the kinds of communication.
struct Census {
  std::unordered_map<int, int> worker_of;  // stage id -> the worker that has most of it
  std::unordered_map<int, std::vector<std::pair<int, std::int64_t>>> held;  // by worker, in order
  std::unordered_map<int, int> parts_of;          // stage id -> number of reduction parts
  std::unordered_map<int, int> layers_of;         // stage id -> layers with factors
  std::unordered_map<int, MicroSet> forwards_of;  // stage id -> the micro-batches of its forwards
  std::int64_t highest_stage = -1;
  std::int64_t highest_micro = -1;
  int highest_worker = -1;  // first worker that has the highest micro-batch, in `highest`
  Instr highest = {};
  bool lowered = false;  // instructions other than compute and updates
  bool scalars = false;
  bool averages = false;
  bool servers = false;
  bool owners = false;

  void take(const std::vector<Instr>& row, int worker, std::int64_t raise, bool half_micros) {
    for (const Instr& i : row) {
      lowered |= !is_compute(i.kind) && i.kind != Kind::Update;
      scalars |= i.kind == Kind::ReduceScalars;
      averages |= i.kind == Kind::PartialReduce;
      servers |= i.kind == Kind::Push || i.kind == Kind::Pull;
      owners |= i.kind == Kind::Gather;
      if (i.stage < 0) continue;
      std::vector<std::pair<int, std::int64_t>>& on = held[i.stage];
      if (on.empty() || on.back().first != worker) on.push_back({worker, 0});
      ++on.back().second;
      highest_stage = std::max<std::int64_t>(highest_stage, i.stage);
      if (i.kind == Kind::ReduceGrad) parts_of[i.stage] = std::max(parts_of[i.stage], i.part + 1);
      if (is_curvature(i.kind)) layers_of[i.stage] = std::max(layers_of[i.stage], i.part + 1);
      if (i.micro < 0) continue;
      if (i.kind == Kind::Forward) forwards_of[i.stage].add(i.micro);
      const bool forward = i.kind == Kind::Forward || i.kind == Kind::SendForward ||
                           i.kind == Kind::RecvForward || is_curvature(i.kind);
      const std::int64_t micro = i.micro + raise;
      const std::int64_t whole = half_micros && !forward ? micro / 2 : micro;
      if (whole <= highest_micro) continue;
      highest_micro = whole;
      highest_worker = worker;
      highest = i;
      highest.micro = static_cast<int>(std::min<std::int64_t>(micro, 1 << 28));
    }
  }
};

Census census_of(const Schedule& s, const std::string& origin) {
  Census census;
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  std::int64_t length = 0;
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    const Program& p = s.workers[w];
    const int worker = static_cast<int>(w);
    if (p.repeat < 0 || p.shift < 0)
      wrong(origin, fmt::format("worker {}: repeat and shift must be at least 0", w));
    length += static_cast<std::int64_t>(p.prologue.size()) + p.drain.size() +
              static_cast<std::int64_t>(p.body.size()) * p.repeat;
    if (length > kMost) wrong(origin, fmt::format("the plan has more than {} instructions", kMost));
    census.take(p.prologue, worker, 0, s.half_micros);
    if (p.repeat > 0)
      census.take(p.body, worker, static_cast<std::int64_t>(p.shift) * (p.repeat - 1),
                  s.half_micros);
    census.take(p.drain, worker, 0, s.half_micros);
  }
  // A cell with a wrong stage id must not move the stage to its worker, because the message would
  // then blame all the correct cells. On a tie, the stage is on the first worker.
  for (const auto& [stage, on] : census.held)
    census.worker_of[stage] =
        std::max_element(on.begin(), on.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
  if (census.highest_micro >= kMost)
    wrong(origin, fmt::format("micro-batch id {} is too large", census.highest_micro));
  return census;
}

// Returns the number of copies of a model that the rows look like: blocks of stage ids of equal
// size, each of which runs other micro-batches than the rest. Returns 1 if the rows look like one
// model, whose stages all run every micro-batch, or like neither.
int apparent_replicas(const Census& census) {
  std::vector<MicroSet> of(census.worker_of.size());
  for (const auto& [stage, micros] : census.forwards_of) of[stage] = micros;
  std::size_t model = 1;
  while (model < of.size() && of[model] == of[0]) ++model;
  if (of.size() % model != 0) return 1;
  MicroSet found, all;
  for (std::size_t id = 0; id < of.size(); ++id) {
    if (!(of[id] == of[id / model * model])) return 1;
    if (id % model == 0) found = {found.count + of[id].count, found.hashes + of[id].hashes};
  }
  if (found.count != census.highest_micro + 1) return 1;
  for (std::int64_t micro = 0; micro < found.count; ++micro) all.add(micro);
  return found == all ? static_cast<int>(of.size() / model) : 1;
}

// Returns where a stage id first occurs: its worker, and the cell of its row.
std::string first_use(const Schedule& s, int stage) {
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    int cell = 1;
    for (const Instr& i : s.workers[w].prologue) {
      if (i.stage == stage) return fmt::format("worker {} at cell {}: {}", w, cell, to_string(i));
      cell += i.with_next ? 0 : 1;
    }
  }
  return "";
}

// Refuses stage ids that are typing errors: with them the stages can't be divided evenly over the
// workers, and they have at most half as many forwards as any other stage. Otherwise the proof
// would ask for the rest of a stage that nobody meant.
void refuse_stray_stages(const Schedule& s, const Census& census) {
  const int workers = static_cast<int>(s.workers.size());
  const int count = static_cast<int>(census.worker_of.size()), meant = count / workers * workers;
  if (meant == count || meant == 0) return;
  std::vector<std::int64_t> forwards(count, 0);
  for (const auto& [stage, micros] : census.forwards_of) forwards[stage] = micros.count;
  const std::int64_t least = *std::min_element(forwards.begin(), forwards.begin() + meant);
  const std::int64_t most = *std::max_element(forwards.begin() + meant, forwards.end());
  const std::string where = first_use(s, meant);
  if (2 * most > least || where.empty()) return;
  fail(Code::Plan, "plan has a stage {}, but there are stages 0 to {} ({}):\n  {}", meant,
       meant - 1, quantity(workers, "worker"), where);
}

void place(Schedule& s, const Census& census, int replicas, const std::string& origin) {
  if (static_cast<std::int64_t>(census.worker_of.size()) != census.highest_stage + 1) {
    int missing = 0;
    while (census.worker_of.count(missing)) ++missing;
    const std::string where = first_use(s, static_cast<int>(census.highest_stage));
    wrong(origin,
          fmt::format("stage {} is missing, but stage {} is present{}; stage ids must run "
                      "from 0 without gaps",
                      missing, census.highest_stage, where.empty() ? "" : " (" + where + ")"));
  }
  refuse_stray_stages(s, census);
  const int count = static_cast<int>(census.worker_of.size());
  const bool repeats = std::any_of(s.workers.begin(), s.workers.end(),
                                   [](const Program& p) { return p.repeat > 0; });
  if (const int copies = replicas == 0 && !repeats ? apparent_replicas(census) : 1; copies > 1)
    wrong(origin,
          fmt::format("its {0} stages run different micro-batches, as {1} copies of a model of {2} "
                      "stage{3} do; the file doesn't state copies, so give --replicas {1}, or "
                      "--replicas 1 if each stage id is another stage of the model",
                      count, copies, count / copies, count == copies ? "" : "s"));
  replicas = std::max(1, replicas);
  if (count % replicas != 0)
    wrong(origin,
          fmt::format("{} stages can't be divided into {} replicas of one model", count, replicas));
  const int model = count / replicas;
  for (int id = 0; id < count; ++id)
    s.placements.push_back({{census.worker_of.at(id)}, id % model, id / model});
  s.chunks = std::max(1, model / static_cast<int>(s.workers.size()));
}

// Derives Lowering from the rows: as many buckets per model stage as the reductions name, scalars,
// and the kind of weight synchronisation.
void infer_lowering(Schedule& s, const Census& census, const PlanFacts& facts) {
  if (census.lowered) s.lowering.pipelines = facts.pipelines;
  s.lowering.reduce_scalars = census.scalars;
  if (census.averages) s.lowering.sharing = WeightAverages{};
  if (census.servers) s.lowering.sharing = ParameterServers{facts.staleness};
  s.lowering.flush = !facts.version_rule && ends_in_flush(s);
  int most = 1;
  std::vector<int> buckets(model_stages(s), 1);
  for (const auto& [stage, parts] : census.parts_of) {
    if (stage >= static_cast<int>(s.placements.size())) continue;
    int& own = buckets[s.placements[stage].model_stage];
    own = std::max(own, parts);
    most = std::max(most, own);
  }
  if (most > 1) s.lowering.gradient_buckets = buckets;
  if (census.layers_of.empty()) return;
  s.lowering.owners = census.owners;
  s.lowering.factor_layers.assign(buckets.size(), 0);
  for (const auto& [stage, layers] : census.layers_of) {
    if (stage >= static_cast<int>(s.placements.size())) continue;
    int& own = s.lowering.factor_layers[s.placements[stage].model_stage];
    own = std::max(own, layers);
  }
  s.lowering.wraps = wraps_work(s);
}

}  // namespace

void parse_cell(std::string_view raw, std::vector<Instr>& out) {
  const std::string_view cell = trimmed(raw);
  if (cell.empty() || is_bookkeeping(cell)) return;
  if (cell.front() != '(') {
    out.push_back(parse_instr(cell));
    return;
  }
  require(ends_with(cell, kPairEnd), "action '{}': a pair is written (0F1;3B0)OVERLAP_F_B",
          one_line(cell.substr(0, 60)));
  const std::string_view inside = cell.substr(1, cell.size() - 1 - kPairEnd.size());
  const std::size_t middle = inside.find(';');
  require(middle != std::string_view::npos, "action '{}': a pair is written (0F1;3B0)OVERLAP_F_B",
          one_line(cell.substr(0, 60)));
  Instr first = parse_instr(trimmed(inside.substr(0, middle)));
  const Instr second = parse_instr(trimmed(inside.substr(middle + 1)));
  require(is_compute(first.kind) && is_compute(second.kind),
          "action '{}': both instructions of a pair must be compute instructions",
          one_line(cell.substr(0, 60)));
  first.with_next = true;
  out.push_back(first);
  out.push_back(second);
}

std::string to_cell(const Instr& instr, const Instr* next) {
  if (!instr.with_next || next == nullptr) return to_string(instr);
  return fmt::format("({};{}{}", to_string(instr), to_string(*next), kPairEnd);
}

bool ends_in_flush(const Schedule& s) {
  const auto is_added = [](const Instr& i) {
    return !is_compute(i.kind) && i.kind != Kind::Update;
  };
  if (!holds(s, Kind::Update) || holds(s, Kind::Push) || !any_instr(s, is_added)) return false;
  if (holds(s, Kind::Precondition)) return true;  // a K-FAC cycle has several steps
  for (const Program& p : s.workers) {
    bool updated = false;
    for (const Instr& i : unroll(p)) {
      if (updated && is_compute(i.kind)) return false;
      updated = updated || i.kind == Kind::Update;
    }
  }
  return true;
}

void complete_plan(Schedule& s, const PlanFacts& facts, const std::string& origin) {
  if (s.workers.empty()) wrong(origin, "the plan is empty");
  if (facts.stages > 0 && facts.stages != static_cast<int>(s.workers.size()))
    wrong(origin, fmt::format("the plan has {} rows, but {} workers were given; it needs one row "
                              "per worker",
                              s.workers.size(), facts.stages));
  const Census census = census_of(s, origin);
  if (census.highest_micro < 0) wrong(origin, "the plan has no instruction for any micro-batch");
  if (s.placements.empty()) place(s, census, facts.replicas, origin);
  if (s.stages == 0) s.stages = static_cast<int>(s.workers.size());
  const std::int64_t total = census.highest_micro + 1;
  if (facts.micro_batches > 0) s.micro_batches = facts.micro_batches;
  if (s.micro_batches == 0) {
    if (total % s.steps != 0)
      wrong(origin,
            fmt::format("{} micro-batches can't be divided into {} equal steps", total, s.steps));
    s.micro_batches = static_cast<int>(total / s.steps);
  }
  if (static_cast<std::int64_t>(s.micro_batches) * s.steps < total)
    wrong(origin,
          fmt::format("micro-batch id {} is too large ({} of worker {}): there are {} "
                      "x {}, and ids start at 0",
                      census.highest_micro, to_string(census.highest), census.highest_worker,
                      quantity(s.micro_batches, "micro-batch"), quantity(s.steps, "step")));
  if (s.lowering == Lowering{}) infer_lowering(s, census, facts);
}

void set_pairs(Schedule& s, const std::string& semantics, const std::string& origin) {
  if (semantics != "split" && semantics != "atomic")
    wrong(origin,
          fmt::format("unknown pair semantics '{}'; known: split, atomic", one_line(semantics)));
  if (semantics == "atomic" && !any_instr(s, [](const Instr& i) { return i.with_next; }))
    wrong(origin,
          "pair semantics atomic needs a pair that is marked to run as one, such as "
          "(0F1;3B0)OVERLAP_F_B");
  if (semantics == "atomic") return;
  for (Program& p : s.workers) {
    for (auto* part : {&p.prologue, &p.body, &p.drain})
      for (Instr& i : *part) i.with_next = false;
  }
}

namespace {

// Refuses cells that are separated by semicolons, which a pair alone contains.
void check_separator(std::string_view cell) {
  cell = trimmed(cell);
  require(cell.empty() || cell.front() == '(' || cell.find(';') == std::string_view::npos,
          "cells are separated by commas, not by semicolons; got '{}'",
          one_line(shortened(std::string(cell))));
}

}  // namespace

Schedule parse_plan_csv(const std::string& given, const std::string& origin,
                        const PlanFacts& facts) {
  const std::string text = with_present_names(given);
  Schedule s;
  s.method = origin;
  s.steps = facts.steps;
  s.half_micros = facts.half_micros;
  if (facts.version_rule) {
    s.version_rule = *facts.version_rule;
    s.most_versions = 0;
  }
  std::string_view rest = text;
  for (int number = 1, blank = 0; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (end > kMostLine)
      wrong(origin, fmt::format("line {} is {} bytes long; a worker's row may have at most {} "
                                "bytes",
                                number, end, kMostLine));
    std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) {
      blank = blank > 0 ? blank : number;
      continue;
    }
    if (blank > 0)
      wrong(origin, fmt::format("line {} is empty; every line must be the row of a worker", blank));
    s.workers.emplace_back();
    for (int cell = 1;; ++cell) {
      const std::size_t comma = std::min(line.find(','), line.size());
      try {
        check_separator(line.substr(0, comma));
        parse_cell(line.substr(0, comma), s.workers.back().prologue);
      } catch (const Error& e) {
        wrong(origin, fmt::format("line {}, cell {}: {}", number, cell, e.what()));
      }
      if (comma == line.size()) break;
      line.remove_prefix(comma + 1);
    }
  }
  split_old_backwards(s);
  complete_plan(s, facts, origin);
  return s;
}

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const Program& p : schedule.workers) {
    const std::vector<Instr> row = unroll(p);
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (k > 0) text += ',';
      text += to_cell(row[k], k + 1 < row.size() ? &row[k + 1] : nullptr);
      k += row[k].with_next ? 1 : 0;
    }
    text += '\n';
  }
  return text;
}

Schedule parse_plan(const std::string& text, const std::string& origin, const PlanFacts& facts) {
  require(facts.steps >= 1 && facts.pipelines >= 1 && facts.replicas >= 0 && facts.stages >= 0 &&
              facts.micro_batches >= 0,
          "sizes of a plan file must be positive");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) wrong(origin, "the file is empty; expected one row per worker");
  Schedule s = text[first] == '{' ? parse_plan_json(text, origin, facts)
                                  : parse_plan_csv(text, origin, facts);
  if (!facts.pair_semantics.empty()) set_pairs(s, facts.pair_semantics, origin);
  return s;
}

Schedule read_plan(const std::string& path, const PlanFacts& facts) {
  return parse_plan(read_text(path), path, facts);
}

const char* version_rule_name(VersionRule rule) {
  switch (rule) {
    case VersionRule::Lag1:
      return "lag1";
    case VersionRule::Wave:
      return "wave";
    default:
      return "newest";
  }
}

VersionRule parse_version_rule(const std::string& name) {
  for (const VersionRule rule : {VersionRule::Newest, VersionRule::Lag1, VersionRule::Wave})
    if (name == version_rule_name(rule)) return rule;
  fail(Code::InvalidArgument, "unknown version rule '{}'; use newest, lag1 or wave",
       one_line(name));
}

const char* sync_place_name(SyncPlace place) {
  switch (place) {
    case SyncPlace::End:
      return "end";
    case SyncPlace::Eager:
      return "eager";
    default:
      return "eager-opt";
  }
}

SyncPlace parse_sync_place(const std::string& name) {
  for (const SyncPlace place : {SyncPlace::End, SyncPlace::Eager, SyncPlace::EagerOpt})
    if (name == sync_place_name(place)) return place;
  fail(Code::InvalidArgument,
       "unknown placement of gradient sums '{}'; use end, eager or eager-opt", one_line(name));
}

}  // namespace hetu
