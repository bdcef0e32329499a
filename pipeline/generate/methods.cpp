#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/nearest.h"
#include "pipeline/generate/families.h"

namespace hetu {
namespace {

// Distance of the search for legal values. It covers every rule that depends on P, V and M only.
// The search needs a limit because some rules have no legal value.
constexpr int kSearch = 4096;

// Returns the nearest legal values below and above the given one, as "6 or 8".
std::string nearest(const Sizes& sizes, int Sizes::*field, bool (*legal)(const Sizes&)) {
  const int wanted = sizes.*field;
  std::string found;
  const auto try_value = [&](std::int64_t value) {
    Sizes s = sizes;
    if (value < 1 || value > INT32_MAX) return false;
    s.*field = static_cast<int>(value);
    if (!legal(s)) return false;
    found.append(found.empty() ? "" : " or ").append(std::to_string(value));
    return true;
  };
  const std::int64_t below = std::max(wanted, 1);
  for (std::int64_t d = 1; d < kSearch && !try_value(wanted - d); ++d) {
  }
  for (std::int64_t v = wanted < 1 ? 1 : below + 1; v < below + kSearch && !try_value(v); ++v) {
  }
  return found.empty() ? "none nearby" : found;
}

bool legal_chunks(const Method& m, const Sizes& sizes) {
  return takes(m, "chunks") ? m.legal_chunks(sizes) : sizes.chunks == m.chunks;
}

// Throws InvalidArgument, with all methods and the one whose name is closest.
[[noreturn]] void fail_unknown(std::string_view name) {
  std::string listed;
  std::vector<std::string> all;
  for (const Method& m : methods()) {
    listed += (listed.empty() ? "" : ", ") + std::string(m.name);
    all.emplace_back(m.name);
    all.insert(all.end(), m.aliases.begin(), m.aliases.end());
    if (!m.aliases.empty()) listed += fmt::format(" ({})", fmt::join(m.aliases, ", "));
  }
  fail(Code::InvalidArgument,
       "unknown method '{}'{}; the methods, with other names in brackets: {}", name,
       did_you_mean(name, all), listed);
}

std::vector<Instr> recomputed(const std::vector<Instr>& row, const Schedule& schedule, int last) {
  std::vector<Instr> out;
  out.reserve(row.size() * 2);
  for (const Instr& i : row) {
    require(i.kind != Kind::Recompute, "the plan recomputes already ({}); don't add recompute",
            to_string(i));
    const bool back = i.kind == Kind::Backward || i.kind == Kind::InputGrad;
    if (back && schedule.placements[i.stage].model_stage != last) {
      const Instr r{.kind = Kind::Recompute, .stage = i.stage, .micro = i.micro};
      // The R of the second half of an atomic pair stands before the pair.
      const bool paired = !out.empty() && out.back().with_next;
      out.insert(paired ? out.end() - 1 : out.end(), r);
    }
    out.push_back(i);
  }
  return out;
}

// Checks the options that generators compare only with words that they know.
void check_words(Sizes s) { check_fields(only(fields(s), {"concat", "pair_semantics"})); }

void check_replicas(const Method& m, const Sizes& s) {
  if (s.replicas.empty()) return;
  require(takes(m, "stage-replicas"),
          "{} takes one copy of each stage; replicas of stages are for gpipe, 1f1b and pipedream",
          m.name);
  require(static_cast<int>(s.replicas.size()) == s.stages,
          "replicas are given for {} stages, but the plan has {}", s.replicas.size(), s.stages);
  int most = 1, workers = 0;
  std::int64_t cycle = 1;
  for (const int d : s.replicas) {
    require(d >= 1 && d <= 4096, "a stage must have 1 to 4096 replicas, got {}", d);
    most = std::max(most, d);
    workers += d;
    cycle = std::lcm(cycle, static_cast<std::int64_t>(d));
    require(cycle <= 4096, "the replicas repeat only after {} micro-batches; the limit is 4096",
            cycle);
  }
  require(s.micro_batches >= most,
          "{} micro-batches leave some of {} replicas without work; use at least {} micro-batches",
          s.micro_batches, most, most);
  const bool updates = takes(m, "steps");
  require(!updates || s.micro_batches % cycle == 0,
          "{} updates once per M micro-batches, which are divided evenly over the replicas; M must "
          "be a multiple of {}, got {}",
          m.name, cycle, s.micro_batches);
}

}  // namespace

const Method* find_method(std::string_view name) {
  for (const Method& m : methods()) {
    if (name == m.name) return &m;
    for (const char* alias : m.aliases)
      if (name == alias) return &m;
  }
  return nullptr;
}

bool takes(const Method& method, std::string_view option) {
  return std::find(method.options.begin(), method.options.end(), option) != method.options.end();
}

bool is_of_some_methods(std::string_view option) {
  return std::any_of(methods().begin(), methods().end(),
                     [&](const Method& m) { return takes(m, option); });
}

void refuse_foreign(const Method& method, const std::set<std::string>& given) {
  Sizes unused;
  for (const OptionField& f : fields(unused)) {
    const std::string option = flag_of(f).substr(2);
    if (given.count(f.name) > 0 && is_of_some_methods(option))
      require(takes(method, option), "--{} does not apply to {}", option, method.name);
  }
  require(given.count("replicas") == 0, "--replicas is for a FILE");
  require(given.count("version_rule") == 0, "--version-rule is for a FILE");
}

Sizes resolved(const Method& method, const Sizes& sizes) {
  Sizes s = sizes;
  if (s.chunks == 0) s.chunks = method.chunks;
  return s;
}

bool is_legal(const Method& method, const Sizes& sizes) {
  const Sizes s = resolved(method, sizes);
  return legal_chunks(method, s) && method.legal_stages(s) && method.legal_micros(s);
}

Schedule generate(std::string_view name, const Sizes& wanted) {
  const Method* m = find_method(name);
  if (m == nullptr) fail_unknown(name);
  const Sizes sizes = resolved(*m, wanted);
  check_words(sizes);
  if (!legal_chunks(*m, sizes))
    fail(Code::InvalidArgument, "{} takes {} chunks, got V = {}", m->name,
         takes(*m, "chunks") ? m->chunks_rule : fmt::format("V = {}", m->chunks), sizes.chunks);
  if (!m->legal_stages(sizes))
    fail(Code::InvalidArgument, "{} takes {} stages, got P = {}; nearest legal: {}", m->name,
         m->stages_rule, sizes.stages, nearest(sizes, &Sizes::stages, m->legal_stages));
  if (!m->legal_micros(sizes))
    fail(Code::InvalidArgument, "{} takes {} micro-batches, got M = {}; nearest legal: {}", m->name,
         m->micros_rule, sizes.micro_batches,
         nearest(sizes, &Sizes::micro_batches, m->legal_micros));
  // Each cell has two instructions of 16 bytes. Larger plans don't fit in memory anyway.
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  const double cells = 1.0 * sizes.stages * sizes.micro_batches * sizes.chunks * sizes.steps;
  require(cells <= static_cast<double>(kMost),
          "{} stages x {} micro-batches is more than a plan can hold ({} cells)", sizes.stages,
          sizes.micro_batches, kMost);
  check_replicas(*m, sizes);
  return m->generate(sizes);
}

Schedule with_recompute(const Schedule& schedule) {
  Schedule s = schedule;
  const int last = model_stages(schedule) - 1;
  for (Program& p : s.workers) {
    p.prologue = recomputed(p.prologue, schedule, last);
    p.body = recomputed(p.body, schedule, last);
    p.drain = recomputed(p.drain, schedule, last);
  }
  return s;
}

}  // namespace hetu
