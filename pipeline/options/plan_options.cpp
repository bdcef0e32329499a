#include "pipeline/options/plan_options.h"

#include <optional>

#include "base/error.h"
#include "base/words.h"
#include "pipeline/options/output_format.h"

namespace hetu {
namespace {

constexpr Range kAny{1, 1 << 20};

// A plain number counts micro-batches; a number with KiB, MiB or GiB is bytes.
void set_limit(Sizes& sizes, const std::string& text) {
  std::optional<double> bytes;
  double limit = 0;
  try {
    bytes = to_bytes(text);
    limit = bytes ? *bytes : to_number(text);
  } catch (const Error& e) {
    if (std::string(e.what()).find(" at most ") != std::string::npos) throw;  // a number
    fail(Code::InvalidArgument,
         "expected micro-batches of activations, such as 8, or bytes with KiB, MiB or GiB, such as "
         "16GiB; got '{}'",
         shortened(text));
  }
  require(limit > 0, "must be above 0");
  sizes.memory_limit = bytes ? 0 : limit;
  sizes.memory_bytes = bytes ? limit : 0;
}

Fields of_files(PlanOptions& o) {
  return {
      {.name = "replicas",
       .value = &o.replicas,
       .argument = "R",
       .doc = "copies of the model in a FILE",
       .range = {1, 1 << 28},
       .otherwise = "from JSON, else 1"},
      {.name = "version_rule",
       .value = &o.version_rule,
       .argument = "RULE",
       .doc = "rule for the weight versions of a FILE with updates inside its rows: newest, lag1 "
              "or wave",
       .choices = {"newest", "lag1", "wave"}},
  };
}

// Options of runs and of several pipelines.
Fields of_runs(PlanOptions& o) {
  const OptionField slots = {.name = "send_slots",
                             .value = &o.run.send_slots,
                             .argument = "K",
                             .doc =
                                 "largest number of unreceived messages per ordered pair of "
                                 "workers; 0: a send waits for its receive",
                             .range = {0, 1 << 28},
                             .otherwise = "unbounded"};
  const Fields side_by_side = {
      {.name = "pipelines",
       .value = &o.pipelines,
       .argument = "N",
       .doc = "number of parallel pipelines",
       .range = {1, 1 << 16}},
      {.name = "sync_method",
       .value = &o.sync_method,
       .argument = "HOW",
       .doc = "how pipelines synchronize weights: allreduce sums gradients; preduce, adpsgd and "
              "adpsgd-lockstep average weights (method pipedream); hetpipe pushes waves of updates "
              "to servers (method hetpipe); ps lets servers apply the gradient of each step (dp, "
              "gpipe, 1f1b and other methods with a flush)",
       .choices = {"allreduce", "preduce", "adpsgd", "adpsgd-lockstep", "hetpipe", "ps"},
       .otherwise = "allreduce; hetpipe for method hetpipe on several pipelines"},
      staleness_field(o.staleness),
      {.name = "servers",
       .value = &o.run.servers,
       .argument = "S",
       .doc = "for hetpipe and ps: number of servers, which hold equal shares of every stage's "
              "weights; a push or a pull takes latency + weight_bytes / (S * bandwidth), or half "
              "an all-reduce / S if the costs lack either of the two",
       .range = {1, 1 << 16}},
  };
  Fields policy = without(fields(o.policy), {"method", "seed"});
  for (OptionField& f : policy) {
    if (f.name != "overlap") continue;
    f.doc =
        "average during the next forward and backward, also with --sync-period 1 or --sync-method "
        "allreduce";
  }
  return joined(joined(joined(fields(static_cast<Stragglers&>(o.run)), {slots}), side_by_side),
                policy);
}

Fields of_curvature(PlanOptions& o) {
  return {fill_field(o.fill),
          {.name = "factor_layers",
           .value = &o.factor_layers,
           .argument = "L",
           .doc = "with --fill: number of layers with K-FAC factors on each model stage",
           .range = {1, INT16_MAX}},
          every_field(o.curvature_every),
          inverses_field(o.inverses)};
}

Fields of_output(PlanOptions& o) {
  const TextAccess output{[&o] { return o.output; },
                          [&o](const std::string& v) {
                            require(!v.empty(), "needs a file name");
                            o.output = v;
                          }};
  return {
      {.name = "lowered", .value = &o.lowered, .doc = "include messages, reductions and updates"},
      {.name = "format",
       .value = &o.format,
       .argument = "WHAT",
       .doc = "output format: grid, csv, json, svg, pdf, png, html or trace; hetu schedule also "
              "writes "
              "torch, a CSV that PyTorch's pipelining runtime executes",
       .choices = {"grid", "csv", "json", "svg", "pdf", "png", "html", "trace", "torch"},
       .otherwise = "by the suffix of -o, else grid"},
      {.name = "style",
       .value = &o.style,
       .argument = "NAME",
       .doc = "timeline, or profile (SVG, PDF, PNG): one row per GPU, three steps, colours and "
              "title as in "
              "Chimera's profiles",
       .choices = {"timeline", "profile"}},
      {.name = "width",
       .value = &o.width_mm,
       .argument = "MM",
       .doc =
           "width of a figure (SVG, PDF, PNG) in millimetres, such as 84 for a column of a paper",
       .range = {40, 2000},
       .otherwise = "190 to 476, by the number of instructions"},
      {.name = "height",
       .value = &o.height_mm,
       .argument = "MM",
       .doc = "height of a figure (SVG, PDF, PNG) in millimetres, to which its rows are scaled",
       .range = {20, 2000},
       .otherwise = "by the number of rows"},
      {.name = "title",
       .value = &o.title,
       .argument = "TEXT",
       .doc = "title of a figure or grid",
       .otherwise = "method, stages and micro-batches"},
      {.name = "output",
       .value = output,
       .argument = "FILE",
       .doc = "file to write instead of standard output; the suffix chooses the format",
       .flag = "-o"},
  };
}

}  // namespace

Fields fields(CostOptions& c) {
  const auto time = [](const char* name, double& value, const char* argument, const char* doc) {
    return OptionField{.name = name, .value = &value, .argument = argument, .doc = doc};
  };
  return {
      time("forward", c.forward, "F", "time of a forward, per worker and micro-batch"),
      time("backward", c.backward, "B",
           "time of a full backward (B in a plan); each of its two gradients takes half"),
      time("input_grad", c.input_grad, "I",
           "time of the input gradient (I in a plan), in place of --backward"),
      time("weight_grad", c.weight_grad, "W",
           "time of the weight gradient (W in a plan), in place of --backward"),
      time("recompute", c.recompute, "R", "time of a recompute"),
      time("update", c.update, "T", "time of an update"),
      time("allreduce", c.allreduce, "T",
           "time of a gradient all-reduce, per gradient bucket of a stage"),
      time("latency", c.latency, "C", "latency of every message between two workers"),
      {.name = "bytes",
       .value = &c.bytes,
       .argument = "N",
       .doc = "size of a message in bytes",
       .otherwise = ""},
      {.name = "bandwidth",
       .value = &c.bandwidth,
       .argument = "X",
       .doc = "bytes per time unit: a message costs latency + bytes/bandwidth",
       .otherwise = "latency only"},
      {.name = "costs",
       .value = &c.costs,
       .argument = "FILE",
       .doc = "file with times in ms per stage: JSON, a CSV of measured blocks, a profile, a "
              "trace, or a plan of hetu plan"},
      {.name = "micro_batch_size",
       .value = &c.table.micro_batch_size,
       .argument = "B",
       .doc =
           "samples per micro-batch; selects the row of a CSV of blocks, or the size of a profile",
       .range = kAny,
       .otherwise = ""},
      {.name = "blocks_per_stage",
       .value = &c.table.blocks_per_stage,
       .argument = "N",
       .doc = "number of blocks of that CSV in each stage",
       .range = kAny,
       .otherwise = ""},
  };
}

Fields fields(PlanOptions& o) {
  const TextAccess limit{[&o] {
                           const bool bytes = o.sizes.memory_bytes > 0;
                           const double is =
                               bytes ? o.sizes.memory_bytes / 1024 : o.sizes.memory_limit;
                           return is == 0 ? "" : fmt::format("{}{}", is, bytes ? "KiB" : "");
                         },
                         [&o](const std::string& v) { set_limit(o.sizes, v); }};
  const OptionField memory = {
      .name = "memory_limit",
      .value = limit,
      .argument = "A",
      .doc =
          "memory limit per worker: activations in micro-batches (an F adds 1, a B takes 1, I and "
          "W take 1/2 each), or bytes of activations, kept until W, and weights with KiB, MiB or "
          "GiB; the plan is proved to stay within it, and methods that choose by costs observe it"};
  Fields all = joined(fields(o.sizes), of_files(o));
  all = joined(joined(std::move(all), fields(o.costs)),
               {speed_field(o.speed), partition_field(o.partition)});
  all = joined(joined(std::move(all), of_runs(o)), {sync_field(o.sync), memory});
  all = joined(std::move(all), of_curvature(o));
  return recorded(joined(std::move(all), of_output(o)), o.given);
}

bool is_page(const std::string& format) { return is_image(format) || format == "html"; }

bool is_image(const std::string& format) {
  return format == "svg" || format == "pdf" || format == "png";
}

void check_style(const std::string& style, const std::string& format) {
  require(style != "profile" || is_image(format),
          "--style profile is for --format svg, pdf and png, not {}",
          format.empty() ? "grid" : format);
}

void check_plan_options(const PlanOptions& o) {
  check_style(o.style, o.format);
  require(o.width_mm == 0 || is_image(o.format), "--width is for --format svg, pdf and png, not {}",
          o.format.empty() ? "grid" : o.format);
  require(o.height_mm == 0 || (is_image(o.format) && o.style == "timeline"),
          "--height is for --format svg, pdf and png in the style timeline");
  require(!o.has("title") || is_page(o.format) || o.format.empty() || o.format == "grid",
          "--title is for figures and grids, not --format {}", o.format);
  groups::Options policy;
  for (const OptionField& f : without(fields(policy), {"method", "seed", "overlap"}))
    require(!o.has(f.name.c_str()) || o.sync_method == "preduce",
            "{} is for --sync-method preduce, not {}", f.within != nullptr ? f.within : flag_of(f),
            o.sync_method);
  require(!o.has("overlap") || !is_of_servers(o.sync_method),
          "--overlap is for pipelines that average weights; --sync-method {} always overlaps its "
          "pushes to servers",
          o.sync_method);
  PlanOptions unused;
  for (const OptionField& f : without(of_curvature(unused), {"fill"}))
    require(!o.has(f.name.c_str()) || !o.fill.empty(),
            "{} applies only to K-FAC's work; add --fill", flag_of(f));
  require(!(o.has("backward") && (o.has("input_grad") || o.has("weight_grad"))),
          "--backward can't be combined with --input-grad or --weight-grad");
  const bool times = o.has("forward") || o.has("backward") || o.has("input_grad") ||
                     o.has("weight_grad") || o.has("recompute");
  require(o.costs.costs.empty() || !times,
          "--costs can't be combined with --forward, --backward, --input-grad, --weight-grad or "
          "--recompute");
}

OptionField group_log_field(std::string& path) {
  return {.name = "group_log",
          .value = &path,
          .argument = "FILE",
          .doc = "file for the log of averaging groups, which hetu timeline --groups draws"};
}

void check_group_log(const std::string& path, const PlanOptions& o) {
  output_format("", path, {{"log", {".jsonl", ".json"}}}, "--group-log");
  require(path.empty() || averages_in_groups(o),
          "--group-log: --sync-method {} has no groups; use preduce, adpsgd or adpsgd-lockstep",
          o.sync_method);
}

}  // namespace hetu
