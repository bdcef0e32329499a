// The table of methods: one row each, in the order of `--help`.
#include "pipeline/generate/families.h"

namespace hetu {
namespace {

bool any_stages(const Sizes& s) { return s.stages >= 1; }
bool any_micros(const Sizes& s) { return s.micro_batches >= 1; }

}  // namespace

const std::vector<Method>& methods() {
  static const std::vector<Method> kMethods = {
      {.name = "gpipe",
       .aliases = {"ScheduleGPipe"},
       .doc = "All forwards, then all backwards (GPipe, Huang et al. 2019).",
       .options = {},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = gpipe},
      {.name = "1f1b",
       .aliases = {"dapple", "pipedream-flush", "Schedule1F1B"},
       .doc = "One forward, one backward, with a flush (DAPPLE, Fan et al. 2021).",
       .options = {},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = one_f_one_b},
      {.name = "dp",
       .aliases = {},
       .doc = "Plain data parallelism: one stage, copies are --pipelines.",
       .options = {},
       .stages_rule = "P = 1",
       .legal_stages = [](const Sizes& s) { return s.stages == 1; },
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = data_parallel},
  };
  return kMethods;
}

const std::vector<const char*>& methods_to_come() {
  static const std::vector<const char*> kNames = {"interleaved-1f1b",
                                                  "interleave",
                                                  "ScheduleInterleaved1F1B",
                                                  "looped-bfs",
                                                  "bfs",
                                                  "looped_bfs",
                                                  "ScheduleLoopedBFS",
                                                  "pipedream",
                                                  "pipedream-2bw",
                                                  "hetpipe",
                                                  "gems",
                                                  "chimera",
                                                  "hanayo",
                                                  "zb-h1",
                                                  "zbh1",
                                                  "zb-h2",
                                                  "zbh2",
                                                  "zb-v",
                                                  "zbv",
                                                  "ScheduleZBVZeroBubble",
                                                  "v-half",
                                                  "v-min",
                                                  "interleaved-zb",
                                                  "ScheduleInterleavedZeroBubble",
                                                  "dualpipe",
                                                  "dualpipev",
                                                  "ScheduleDualPipeV",
                                                  "varuna",
                                                  "zb-1p",
                                                  "zb-2p",
                                                  "auto"};
  return kNames;
}

}  // namespace hetu
