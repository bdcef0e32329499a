// The table of methods: one row each, in the order of `--help`.
#include <algorithm>

#include "pipeline/generate/families.h"

namespace hetu {
namespace {

bool any_stages(const Sizes& s) { return s.stages >= 1; }
bool any_micros(const Sizes& s) { return s.micro_batches >= 1; }

constexpr const char* kRounds = "a multiple of max(1, M div P)";
bool whole_rounds(const Sizes& s) {
  return s.micro_batches >= 1 &&
         s.micro_batches % std::max(1, s.micro_batches / std::max(1, s.stages)) == 0;
}

bool opposed_pairs(const Sizes& s) {
  return s.stages >= 2 && s.stages % 2 == 0 && s.pairs >= 1 && s.stages / 2 % s.pairs == 0;
}

}  // namespace

const std::vector<Method>& methods() {  // NOLINT(readability-function-size): a table
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
      {.name = "interleaved-1f1b",
       .aliases = {"interleave", "ScheduleInterleaved1F1B"},
       .doc = "1F1B with V chunks per worker, looped (Megatron-LM, Narayanan et al. 2021).",
       .options = {"chunks"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = kRounds,
       .legal_micros = whole_rounds,
       .chunks = 2,
       .generate = interleaved_1f1b},
      {.name = "looped-bfs",
       .aliases = {"bfs", "looped_bfs", "ScheduleLoopedBFS"},
       .doc = "Breadth-first through V chunks per worker, looped (Lamy-Poirier 2023).",
       .options = {"chunks"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .chunks = 2,
       .generate = looped_bfs},
      {.name = "pipedream",
       .aliases = {},
       .doc = "1F1B without a flush, an update per micro-batch (PipeDream, Narayanan et al. 2019).",
       .options = {"steps"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = pipedream},
      {.name = "pipedream-2bw",
       .aliases = {},
       .doc = "1F1B without a flush, two weight versions (PipeDream-2BW, Narayanan et al. 2021).",
       .options = {"steps"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "M >= P",
       .legal_micros = [](const Sizes& s) { return s.micro_batches >= s.stages; },
       .generate = pipedream_2bw},
      {.name = "hetpipe",
       .aliases = {},
       .doc = "Waves of M micro-batches on local updates (HetPipe, Park et al. 2020).",
       .options = {"steps"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = hetpipe},
      {.name = "chimera",
       .aliases = {},
       .doc = "Pipelines in both directions (Chimera, Li and Hoefler 2021).",
       .options = {"pairs", "concat"},
       .stages_rule = "P even, P/2 divided by the pairs,",
       .legal_stages = opposed_pairs,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = chimera},
      {.name = "zb-h1",
       .aliases = {"zbh1"},
       .doc = "1F1B with W in the bubbles, at 1F1B's memory (Zero Bubble, Qi et al. 2024).",
       .options = {},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = zb_h1},
      {.name = "zb-h2",
       .aliases = {"zbh2"},
       .doc = "Twice the warm-up of ZB-H1 and its memory, no bubble (Zero Bubble, Qi et al. 2024).",
       .options = {},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = "any M >= 1",
       .legal_micros = any_micros,
       .generate = zb_h2},
      {.name = "interleaved-zb",
       .aliases = {"ScheduleInterleavedZeroBubble"},
       .doc = "ZB-H1 with V chunks per worker, looped (Qi et al. 2024, as in torch).",
       .options = {"chunks"},
       .stages_rule = "any P >= 1",
       .legal_stages = any_stages,
       .micros_rule = kRounds,
       .legal_micros = whole_rounds,
       .chunks = 2,
       .generate = interleaved_zb},
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
  static const std::vector<const char*> kNames = {
      "gems",   "hanayo", "zb-v",     "zbv",       "ScheduleZBVZeroBubble",
      "v-half", "v-min",  "dualpipe", "dualpipev", "ScheduleDualPipeV",
      "varuna", "zb-1p",  "zb-2p",    "auto"};
  return kNames;
}

}  // namespace hetu
