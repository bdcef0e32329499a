#include "cli/plan_options.h"

#include "cli/key_values.h"
#include "graph/base/error.h"
#include "pipeline/generate/generate.h"

namespace hetu::cli {
namespace {

Option whole(const char* name, const char* value, const char* meaning, std::optional<int>& into) {
  return {name, value, meaning, [&into](const std::string& text) {
            into = static_cast<int>(to_integer(text, 1, 1 << 28));
          }};
}

Option number(const char* name, const char* value, const char* meaning,
              std::optional<double>& into) {
  return {name, value, meaning, [&into](const std::string& text) { into = to_number(text); }};
}

Option flag(const char* name, const char* meaning, bool& into) {
  return {name, nullptr, meaning, [&into](const std::string&) { into = true; }};
}

// A plain number counts micro-batches; KiB, MiB and GiB make bytes.
void parse_limit(const std::string& text, PlanOptions& o) {
  struct Unit {
    const char* name;
    double bytes;
  };
  for (const Unit& unit : {Unit{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}}) {
    const std::size_t n = text.size();
    if (n < 3 || text.substr(n - 3) != unit.name) continue;
    o.limit_bytes = to_number(text.substr(0, n - 3)) * unit.bytes;
    require(*o.limit_bytes > 0, "must be above 0");
    return;
  }
  o.limit_micros = to_number(text);
  require(*o.limit_micros > 0, "must be above 0");
}

void add_sizes(PlanOptions& o, std::vector<Option>& t) {
  t.push_back(whole("--stages", "P", "workers of one pipeline", o.stages));
  t.push_back(whole("--micro-batches", "M", "micro-batches per step, over all directions",
                    o.micro_batches));
  t.push_back(whole("--chunks", "V", "model stages per worker, for methods that use it", o.chunks));
  t.push_back(whole("--pairs", "F", "pipeline pairs (chimera)", o.pairs));
  t.push_back(
      {"--stage-replicas", "LIST",
       "copies of each stage, as 1,2,1: micro-batch g on copy g mod D (gpipe, 1f1b, pipedream)",
       [&o](const std::string& v) {
         o.stage_replicas.clear();
         for (const std::string& part : split(v, ','))
           o.stage_replicas.push_back(static_cast<int>(to_integer(part, 1, 4096)));
       }});
  t.push_back({"--concat", "HOW",
               "direct, doubling, halving or best (chimera); halving also tells it of a FILE",
               [&o](const std::string& v) {
                 o.concat = one_of(v, {"direct", "doubling", "halving", "best"});
               }});
  t.push_back(whole("--replicas", "R", "copies of the model in a FILE (default: from JSON, else 1)",
                    o.replicas));
  t.push_back(
      whole("--steps", "K", "steps of an asynchronous method or of a FILE (default 1)", o.steps));
  t.push_back({"--pair-semantics", "HOW",
               "split or atomic (dualpipe, dualpipev, and a FILE with pairs)",
               [&o](const std::string& v) {
                 o.pair_semantics = one_of(v, {"split", "atomic"});
               }});
  t.push_back(flag("--runtime-rule", "with the run-time rule (varuna)", o.runtime_rule));
  t.push_back({"--version-rule", "RULE",
               "newest, lag1 or wave: weight versions of a FILE with updates in mid-row",
               [&o](const std::string& v) {
                 o.version_rule = one_of(v, {"newest", "lag1", "wave"});
               }});
  t.push_back(flag("--with-recompute", "an R before each B or I, except on the last model stage",
                   o.with_recompute));
}

void add_costs(PlanOptions& o, std::vector<Option>& t) {
  t.push_back(number("--forward", "F", "time of a forward, per worker and micro-batch (default 1)",
                     o.forward));
  t.push_back(number("--backward", "B",
                     "time of a full backward (default 2); alone, both gradients take half",
                     o.backward));
  t.push_back(number("--input-grad", "B", "time of the input gradient, in place of --backward",
                     o.input_grad));
  t.push_back(number("--weight-grad", "W", "time of the weight gradient, in place of --backward",
                     o.weight_grad));
  t.push_back(number("--recompute", "R", "time of a recompute (default 0)", o.recompute));
  t.push_back(number("--update", "T", "time of an update (default 0)", o.update));
  t.push_back(number("--allreduce", "T",
                     "time of a reduction, per gradient group of a stage (default 0)",
                     o.allreduce));
  t.push_back(
      number("--latency", "C", "of every edge between different workers (default 0)", o.latency));
  t.push_back(number("--bytes", "N", "message size", o.bytes));
  t.push_back(number("--bandwidth", "X",
                     "bytes per time unit: a message costs latency + bytes/bandwidth",
                     o.bandwidth));
  t.push_back({"--costs", "FILE",
               "times in ms per stage: JSON, a CSV of measured blocks, or a trace",
               [&o](const std::string& v) { o.costs = v; }});
  t.push_back(
      {"--micro-batch-size", "B", "which row of a CSV of blocks", [&o](const std::string& v) {
         o.table.micro_batch_size = static_cast<int>(to_integer(v, 1, 1 << 20));
       }});
  t.push_back({"--blocks-per-stage", "N", "how many blocks of that CSV make a stage",
               [&o](const std::string& v) {
                 o.table.blocks_per_stage = static_cast<int>(to_integer(v, 1, 1 << 20));
               }});
}

// Of partial reduce alone.
void add_policy(PlanOptions& o, std::vector<Option>& t) {
  const auto count = [&](const char* name, const char* value, const char* meaning, int& into,
                         int least) {
    t.push_back({name, value, meaning, [&o, &into, name, least](const std::string& v) {
                   into = static_cast<int>(to_integer(v, least, 1 << 20));
                   o.of_preduce = name;
                 }});
  };
  count("--sync-period", "P", "preduce: all pipelines are joined within P updates of each (10)",
        o.policy.sync_period, 1);
  count("--min-group", "G", "preduce: smaller groups wait, while arrivals are near",
        o.policy.min_group, 1);
  count("--max-group", "G", "preduce: no group is larger (2: pairs, as above 8 pipelines)",
        o.policy.max_group, 2);
  count("--pair-above", "N", "preduce: pairs with more pipelines than this (8)",
        o.policy.pair_above, 1);
  t.push_back({"--preduce-weights", "HOW",
               "preduce: uniform (default), or staleness: who lags counts less in a mean",
               [&o](const std::string& v) {
                 o.policy.weights = groups::parse_weights(v);
                 o.of_preduce = "--preduce-weights";
               }});
  t.push_back(constants_option(o.policy, [&o] { o.of_preduce = "--group-options"; }));
}

void add_run(PlanOptions& o, std::vector<Option>& t) {
  t.push_back({"--speed", "LIST", "per worker, as 1,1,0.5: 0.5 is half as fast",
               [&o](const std::string& v) {
                 o.speed.clear();
                 for (const std::string& part : split(v, ',')) o.speed.push_back(to_number(part));
               }});
  t.push_back({"--jitter", "S", "each time x (1 + S |N(0,1)|)",
               [&o](const std::string& v) { o.run.jitter = to_number(v); }});
  t.push_back({"--seed", "N", "of jitter and pauses (default 0)", [&o](const std::string& v) {
                 o.run.seed = static_cast<std::uint64_t>(to_integer(v, 0, INT64_MAX));
               }});
  t.push_back({"--hetero", "X", "a pause of X time units before one compute instruction in ten",
               [&o](const std::string& v) { o.run.hetero = to_number(v); }});
  t.push_back(slow_option(o.run.slow));
  t.push_back(
      {"--send-slots", "K",
       "unreceived messages per ordered pair of workers; 0 = rendezvous (default: unbounded)",
       [&o](const std::string& v) { o.send_slots = static_cast<int>(to_integer(v, 0, 1 << 28)); }});
  t.push_back(
      {"--pipelines", "N", "pipelines side by side (default 1)",
       [&o](const std::string& v) { o.pipelines = static_cast<int>(to_integer(v, 1, 1 << 16)); }});
  t.push_back({"--sync-method", "HOW",
               "how pipelines average: allreduce, preduce, adpsgd or adpsgd-lockstep (pipedream)",
               [&o](const std::string& v) {
                 o.sync_method =
                     one_of(v, {"allreduce", "preduce", "adpsgd", "adpsgd-lockstep"}, {"hetpipe"});
               }});
  t.push_back({"--overlap", nullptr,
               "averaging beside the next forward and backward also for P = 1, or of allreduce",
               [&o](const std::string&) { o.overlap = true; }});
  t.push_back({"--no-overlap", nullptr, "a stage waits for its average before it goes on",
               [&o](const std::string&) { o.overlap = false; }});
  add_policy(o, t);
  t.push_back(
      {"--sync", "WHERE",
       "where reductions stand in a row: end, eager, or eager-opt, which is eager where idle "
       "time can hide them (default)",
       [&o](const std::string& v) {
         o.sync = one_of(v, {"end", "eager", "eager-opt"});
       }});
  t.push_back({"--memory-limit", "A",
               "bound to keep per worker, for methods that choose by costs, and to prove: in "
               "micro-batches, or "
               "bytes with KiB, MiB, GiB",
               [&o](const std::string& v) { parse_limit(v, o); }});
}

void add_output(PlanOptions& o, std::vector<Option>& t) {
  t.push_back(flag("--lowered", "with communication, reductions and updates", o.lowered));
  t.push_back({"--format", "WHAT", "grid, csv, json, svg, pdf, html or trace (default grid)",
               [&o](const std::string& v) {
                 o.format = one_of(v, {"grid", "csv", "json", "svg", "pdf", "html", "trace"});
               }});
  t.push_back({"--style", "NAME",
               "timeline (default) or profile (SVG, PDF): one row per GPU, three steps, colours "
               "and title as in Chimera's profiles",
               [&o](const std::string& v) {
                 o.style = one_of(v, {"timeline", "profile"});
               }});
  t.push_back({"-o", "FILE", "write there in place of standard output", [&o](const std::string& v) {
                 require(!v.empty(), "needs a file name");
                 o.output = v;
               }});
}

}  // namespace

bool is_page(const std::string& format) {
  return format == "svg" || format == "pdf" || format == "html";
}

void check_style(const std::string& style, const std::string& format) {
  require(style != "profile" || format == "svg" || format == "pdf",
          "--style profile is for --format svg and pdf, not {}", format.empty() ? "grid" : format);
}

std::vector<Option> plan_options(PlanOptions& o) {
  std::vector<Option> table;
  add_sizes(o, table);
  add_costs(o, table);
  add_run(o, table);
  add_output(o, table);
  return table;
}

PlanOptions parse_plan_options(const std::vector<std::string>& arguments,
                               const std::vector<Option>& own) {
  PlanOptions typed;
  std::vector<Option> rows = plan_options(typed);
  rows.insert(rows.end(), own.begin(), own.end());
  const std::vector<std::string> rest = parse_options(arguments, rows);
  require(!rest.empty(), "which METHOD or FILE? --help lists them");
  if (rest.size() > 1)
    fail(Code::InvalidArgument, "one METHOD or FILE, got {}: '{}' is too much", rest.size(),
         rest[1].substr(0, 60));
  typed.source = rest[0];
  check_style(typed.style, typed.format);
  require(typed.of_preduce.empty() || typed.sync_method == "preduce",
          "{} is for --sync-method preduce, not {}", typed.of_preduce, typed.sync_method);
  require(!(typed.backward && (typed.input_grad || typed.weight_grad)),
          "--backward and --input-grad or --weight-grad exclude each other");
  const bool times =
      typed.forward || typed.backward || typed.input_grad || typed.weight_grad || typed.recompute;
  require(typed.costs.empty() || !times,
          "--costs and --forward, --backward, --input-grad, --weight-grad or --recompute exclude "
          "each other");
  return typed;
}

Option group_log_option(std::string& path) {
  return {"--group-log", "FILE", "writes who averages with whom and when (hetu timeline --groups)",
          [&path](const std::string& v) { path = v; }};
}

void check_group_log(const std::string& path, const PlanOptions& o) {
  require(path.empty() || averages_in_groups(o),
          "--group-log: --sync-method {} has no groups; preduce, adpsgd and adpsgd-lockstep have",
          o.sync_method);
}

std::string plan_help(const char* command, const char* meaning, const std::vector<Option>& own) {
  PlanOptions unused;
  std::vector<Option> rows = plan_options(unused);
  rows.insert(rows.end(), own.begin(), own.end());
  std::string text = fmt::format(
      "usage: hetu {} METHOD|FILE.csv|FILE.json [options]\n{}\n\nMethods:\n", command, meaning);
  for (const Method& m : methods()) {
    text += fmt::format("  {:<17}{}\n{:19}Legal: {}, {}.", m.name, m.doc, "", m.stages_rule,
                        m.micros_rule);
    std::string options;
    for (const std::string option : m.options) {
      options += (options.empty() ? "--" : ", --") + option;
      if (option == "chunks")
        options += fmt::format(" ({}, {} unless told)", m.chunks_rule, m.chunks);
    }
    if (!options.empty()) text += fmt::format(" Takes {}.", options);
    std::string others;
    for (const char* a : m.aliases) others.append(others.empty() ? "" : ", ").append(a);
    text += others.empty() ? "\n" : fmt::format(" Also: {}.\n", others);
  }
  return text + "\nOptions:\n" + help_text(rows) +
         "\nExit status: 0; 1 a plan that fails verification; 2 wrong options or unreadable "
         "input.\n";
}

}  // namespace hetu::cli
