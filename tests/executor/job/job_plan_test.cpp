// Tests the plan of a training job. It is a value that needs no links, every construction gives the
// same plan, and Job runs it. Also covers plans of runs of every length.
#include "executor/job/job_plan.h"

#include <gmock/gmock.h>
#include <omp.h>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/job/job_check.h"
#include "executor/job/make_plan.h"
#include "graph/passes/fuse_bias_grad.h"
#include "graph/passes/mixed_precision.h"
#include "net/transport/inproc.h"
#include "ops/registry.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

Graph model() {
  testing_model::Sizes sizes;
  sizes.tied = false;
  return testing_model::language_model(sizes);
}

JobOptions options_of(const char* method, int pipelines, int stages, int micro_batches) {
  JobOptions options = test_options();
  options.method = method;
  options.pipelines = pipelines;
  options.stages = stages;
  options.micro_batches = micro_batches;
  options.batch_size = 2 * micro_batches;
  options.threads = 1;  // The scratch memory of kernels depends on the number of threads.
  return options;
}

TEST(JobPlan, NamesADeviceThatThereIs) {
  JobOptions options = options_of("1f1b", 1, 2, 4);
  options.device = "tpu";
  EXPECT_THAT(
      [&] {
        make_plan(model(), {}, options, {0, 2});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("unknown device 'tpu'; known: ")));
}

// The back end chooses the kernel of each node. The stage must hold the kernels that the back end
// prepared.
TEST(JobPlan, StagesHaveTheKernelsOfTheirBackEnd) {
  const Graph graph = model();
  CompileOptions options;
  options.first_block = {0};
  options.training = false;
  options.prepare = [](const KernelDesc& desc, KernelChoice choice) {
    PreparedKernel kernel = prepare_cpu(desc, choice);
    kernel.implementation = "of another device";
    return kernel;
  };
  const StagePlan stage = compile_stage(graph, options);
  ASSERT_FALSE(stage.forward.launches.empty());
  for (const Launch& launch : stage.forward.launches)
    EXPECT_STREQ(launch.kernel->implementation, "of another device");
}

// Gradients of linear weights have no memory besides their sums. The product writes the first
// micro-batch's gradient into the sum and adds the others to it. If the product also computes the
// gradient of the bias, that gradient has its own memory for all micro-batches but the first.
class SummedGradients : public testing::TestWithParam<bool> {};
TEST_P(SummedGradients, AreWhatProductsAddTo) {
  const Graph graph = GetParam() ? fuse_bias_grad(model()) : model();
  CompileOptions options;
  options.first_block = {0};
  options.micro_batch = 2;
  options.micro_batches = 4;
  options.prepare = prepare_cpu;
  const auto in_place = [&] {
    const StagePlan stage = compile_stage(graph, options);
    int found = 0;
    for (const Accumulate& a : stage.backward.accumulates) {
      const Launch& launch = stage.backward.launches[a.after_launch];
      const bool of_weight = graph.nodes[launch.node].op.starts_with("linear_weight_");
      const bool adds = of_weight && !options.half_backward;
      const StageParameter& parameter = stage.parameters[stage.uses[a.use].parameter];
      const bool is_sum = !graph.parameters[parameter.parameter].name.ends_with("bias");
      EXPECT_EQ(a.in_place, adds && is_sum) << graph.nodes[launch.node].name;
      EXPECT_EQ(launch.sum_of_use != kNone, adds);
      if (adds && !is_sum) {
        EXPECT_NE(launch.sum_of_use, a.use);
        EXPECT_EQ(a.output, 1) << "the first micro-batch's is written into its sum";
        EXPECT_NE(launch.outputs[1].region, Region::Accumulator);
      }
      if (!a.in_place) continue;
      EXPECT_EQ(launch.sum_of_use, a.use);
      ++found;
      EXPECT_EQ(launch.outputs[0].region, Region::Accumulator);
      EXPECT_EQ(launch.outputs[0].offset, stage.uses[a.use].accumulator.offset);
    }
    return found;
  };
  EXPECT_EQ(in_place(), 9) << "two per block, and the decoder's";
  options.half_backward = true;
  EXPECT_EQ(in_place(), 0) << "halves have kernels of two sizes";
}
INSTANTIATE_TEST_SUITE_P(JobPlan, SummedGradients, testing::Bool());

// A product also computes the gradient of its bias, unless the product reads the terms of that
// gradient rounded.
TEST(JobPlan, BiasGradientsAreSumsOfWhatIsThere) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 8});
  const ValueId y =
      testing_model::dense(b, b.apply("gelu", {testing_model::dense(b, x, 8, 8, "in")}), 8, 8, "y");
  const ValueId loss = b.apply("mul", {y, b.placeholder("r", DType::Float32, {kBatch, 8})});
  b.fetch("loss", b.apply("sum", {loss}));
  b.differentiate(b.graph().fetches[0].second);
  const Graph graph = b.finish();
  JobOptions options = options_of("gpipe", 1, 1, 2);
  for (const char* dtype : {"float32", "bf16-emulated"}) {
    options.dtype = dtype;
    const JobPlan plan = make_plan(graph, {}, options, {0, 1});
    std::vector<std::string> joined, apart;
    for (const Node& n : plan.graph.nodes) {
      if (n.op == "linear_weight_bias_grad") joined.push_back(n.name);
      if (n.op == "sum_rows") apart.push_back(n.name);
    }
    const std::string in = "in/grad/linear_weight_grad", of_y = "y/grad/linear_weight_grad";
    if (options.dtype == "float32") {
      EXPECT_THAT(joined, testing::UnorderedElementsAre(in, of_y));
    } else {
      EXPECT_THAT(joined, testing::ElementsAre(in)) << "r is rounded for the product alone";
      EXPECT_THAT(apart, testing::ElementsAre("y/grad/sum_rows"));
    }
  }
}

// If a weight doesn't change between updates and products read it in a narrow dtype, it is rounded
// once per update. Forward and backward share the rounded copy.
TEST(JobPlan, WeightsAreRoundedOncePerUpdate) {
  const Graph graph = mixed_precision(model(), op_set(), DType::BFloat16);
  CompileOptions options;
  options.first_block = {0};
  options.prepare = prepare_cpu;
  const auto casts = [&](const Function& f) {
    return std::count_if(f.launches.begin(), f.launches.end(), [&](const Launch& l) {
      const Node& node = graph.nodes[l.node];
      return node.op == "cast" && graph.producer(node.inputs[0]).op == "parameter";
    });
  };
  const StagePlan often = compile_stage(graph, options);
  options.weights_rest = true;
  const StagePlan once = compile_stage(graph, options);
  EXPECT_EQ(casts(often.forward), 9);
  EXPECT_EQ(casts(often.backward), 9);
  EXPECT_EQ(casts(often.rounded) + often.memory.rounded, 0);
  EXPECT_EQ(casts(once.forward) + casts(once.backward), 0);
  EXPECT_EQ(casts(once.rounded), 9);
  // Each of four blocks has two weights of width by 2 * width. The decoder's weight has vocabulary
  // by width elements. Each weight starts on a cache line of 64 bytes.
  const testing_model::Sizes s;
  EXPECT_EQ(once.memory.rounded,
            8 * 2 * 2 * s.width * s.width + (s.vocabulary * s.width * 2 + 63) / 64 * 64);
  EXPECT_EQ(once.memory.peak() - often.memory.peak(),
            once.memory.rounded + once.memory.scratch - often.memory.scratch);
}

// Products of few rows read packed weights. Where several micro-batches read the same weights, they
// are packed once per update, for the forward and for the gradient of inputs. The weights
// themselves are kept too.
TEST(JobPlan, WeightsArePackedOncePerUpdate) {
  const Graph graph = model();
  CompileOptions options;
  options.first_block = {0};
  options.micro_batches = 4;
  options.prepare = prepare_cpu;
  const auto packed = [](const Function& f) {
    return std::count_if(f.launches.begin(), f.launches.end(),
                         [](const Launch& l) { return l.packed_input != kNone; });
  };
  options.pack_weights = true;
  const StagePlan often = compile_stage(graph, options);
  EXPECT_EQ(packed(often.forward) + packed(often.backward) + often.memory.packed, 0);
  options.weights_rest = true;
  const StagePlan once = compile_stage(graph, options);
  EXPECT_EQ(packed(once.forward), 9) << "two per block, and the decoder's";
  EXPECT_EQ(packed(once.backward), 9);
  ASSERT_EQ(once.rounded.launches.size(), 18U);
  for (const Launch& l : once.rounded.launches) {
    EXPECT_TRUE(l.packs);
    EXPECT_EQ(l.inputs[0].region, Region::Weights);
  }
  EXPECT_GE(once.memory.packed, 2 * 9 * 64);
  EXPECT_EQ(once.memory.peak() - often.memory.peak(), once.memory.packed);
  options.micro_batches = 1;
  EXPECT_EQ(compile_stage(graph, options).memory.packed, 0) << "nobody reads them twice";
  // Functions for a smaller number of samples read the weights unpacked.
  for (const Launch& l : with_samples(graph, once, once.forward, 1).launches)
    EXPECT_EQ(l.packed_input, kNone);
}

TEST(JobPlan, IsWhatEveryWorkerRuns) {
  const Graph graph = model();
  for (const JobOptions& options :
       {options_of("1f1b", 2, 2, 4), options_of("interleaved-1f1b", 1, 2, 4),
        options_of("pipedream", 1, 3, 1), options_of("pipedream-2bw", 2, 2, 2)}) {
    const int workers = options.pipelines * options.stages;
    EXPECT_EQ(on_worker_threads(
                  workers,
                  [&](comm::Transport& links) {
                    const Job trainer(graph, {}, options, links);
                    const JobPlan plan = make_plan(graph, {}, options, {links.worker(), workers});
                    EXPECT_EQ(plan.lowered, trainer.plan().lowered) << options.method;
                    EXPECT_EQ(to_string(plan.memory), to_string(trainer.plan().memory));
                    EXPECT_EQ(plan.options.first_block, trainer.plan().options.first_block);
                    EXPECT_EQ(plan.planned_peak(), trainer.plan().planned_peak());
                    EXPECT_EQ(plan.stage(), trainer.plan().stage());
                    EXPECT_EQ(plan.number(), links.worker());
                    EXPECT_EQ(plan.asynchronous, trainer.plan().asynchronous);
                    ASSERT_EQ(plan.fields.size(), trainer.plan().fields.size());
                    for (std::size_t f = 0; f < plan.fields.size(); ++f)
                      EXPECT_EQ(plan.fields[f].name, trainer.plan().fields[f].name);
                  }),
              "");
  }
}

TEST(JobPlan, LeavesTheThreadsOfTheCallerAlone) {
  const int before = omp_get_max_threads();
  JobOptions options = options_of("1f1b", 1, 2, 2);
  options.threads = before + 1;
  make_plan(model(), {}, options, {0, 2});
  EXPECT_EQ(omp_get_max_threads(), before);
  check_job(model(), {}, options);
  EXPECT_EQ(omp_get_max_threads(), before);
}

TEST(JobPlan, IsForSoManyWorkers) {
  EXPECT_THAT(
      [] {
        make_plan(model(), {}, options_of("1f1b", 2, 2, 2), {0, 3});
      },
      testing::ThrowsMessage<Error>(
          testing::HasSubstr("2 pipelines of 2 stages need 4 workers, but 3 were started")));
}

// Up to least_steps() steps, the plan of a run equals a plan that is generated for its length.
// Longer runs use the plan of least_steps() steps, whose rows repeat.
TEST(JobPlan, OfARunIsAsGeneratedForIt) {
  for (const char* method : {"pipedream", "pipedream-2bw"}) {
    for (const bool recompute : {false, true}) {
      for (int stages = 1; stages <= 3; ++stages) {
        const int micros = std::string(method) == "pipedream" ? 1 : 3;
        JobOptions options = options_of(method, 1, stages, micros);
        options.with_recompute = recompute;
        const JobPlan plan = make_plan(model(), {}, options, {0, stages});
        ASSERT_TRUE(plan.asynchronous);
        const int least = least_steps(plan.one_step);
        for (int steps = 1; steps <= 3 * least; ++steps) {
          Sizes sizes{.stages = stages, .micro_batches = micros, .steps = std::min(steps, least)};
          const Schedule rows = generate(method, sizes);
          EXPECT_EQ(plan.of_run(steps), lower(recompute ? with_recompute(rows) : rows, plan.how))
              << method << ", " << stages << " stages, " << steps << " steps";
        }
      }
    }
  }
}

// A user's own rows are never generated or shortened. If a plan can't have the requested length,
// the error names that length.
TEST(JobPlan, OfAUsersOwnRowsIsAsLongAsTheyCanBe) {
  JobOptions options = options_of("", 1, 2, 1);
  options.plan = generate("pipedream", {.stages = 2, .micro_batches = 1, .steps = 20});
  const JobPlan plan = make_plan(model(), {}, options, {1, 2});
  EXPECT_EQ(plan.lowered, lower(*options.plan, plan.how));
  EXPECT_EQ(plan.of_run(25), plan.lowered);
  for (Program& p : options.plan->workers) p = {unroll(p), {}, 0, 0, {}};
  const JobPlan flat = make_plan(model(), {}, options, {1, 2});
  EXPECT_EQ(flat.of_run(20).steps, 20);
  EXPECT_THAT([&] { flat.of_run(25); }, testing::ThrowsMessage<Error>(testing::HasSubstr(
                                            "a plan of 20 step(s) can't be changed to 25 steps")));
}

TEST(JobPlan, OfAUsersOwnRowsIsForNoShorterRun) {
  const auto links = comm::make_inproc(1);
  JobOptions options = options_of("", 1, 1, 1);
  options.plan = generate("pipedream", {.stages = 1, .micro_batches = 1, .steps = 20});
  Job trainer(model(), {}, options, *links[0]);
  EXPECT_THAT([&] { trainer.begin_run(19); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  "the plan has 20 steps without a flush, but the run has only 19")));
}

TEST(JobPlan, OfValidationHasForwardsAlone) {
  for (const char* method : {"1f1b", "pipedream-2bw"}) {
    const JobPlan plan = make_plan(model(), {}, options_of(method, 1, 2, 2), {0, 2});
    const Schedule forwards = plan.of_validation();
    EXPECT_FALSE(any_instr(
        forwards, [](const Instr& i) { return is_compute(i.kind) && i.kind != Kind::Forward; }));
    EXPECT_TRUE(holds(forwards, Kind::ReduceScalars)) << method;
  }
}

}  // namespace
}  // namespace hetu
