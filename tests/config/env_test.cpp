// Tests environment variables: values, defaults, errors and the table.
#include "config/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/processor.h"

namespace hetu {
namespace {

using testing::HasSubstr;

Env read_from(const std::map<std::string, std::string>& set) {
  return read_env([&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

TEST(Env, DefaultsStandWithoutVariablesAndForEmptyOnes) {
  std::map<std::string, std::string> empty;
  for (const EnvRow& row : env_table()) empty[row.name] = "";
  for (const Env& e : {read_from({}), read_from(empty)}) {
    EXPECT_EQ(e.timeout_s, 300);
    EXPECT_EQ(e.log_level, Level::Info);
    EXPECT_EQ(e.kernels, KernelChoice::Best);
    EXPECT_EQ(e.devices, "");
    EXPECT_EQ(e.threads, 0);
    EXPECT_TRUE(e.hosts.empty());
    EXPECT_EQ(e.progress_fd, -1);
    EXPECT_EQ(e.worker, 0);
    EXPECT_EQ(e.workers, 1);
  }
}

TEST(Env, TheDocumentedDefaultIsTheRealOne) {
  for (const EnvRow& row : env_table()) {
    if (row.fallback.empty()) continue;
    const Env e = read_from({{row.name, row.fallback}});
    const Env d;
    EXPECT_EQ(std::tie(e.timeout_s, e.log_level, e.kernels, e.threads, e.worker, e.workers,
                       e.local_worker, e.local_workers),
              std::tie(d.timeout_s, d.log_level, d.kernels, d.threads, d.worker, d.workers,
                       d.local_worker, d.local_workers))
        << row.name;
  }
}

TEST(Env, RefusesAnotherInstructionSetThanTheBuilds) {
  read_from({{"HETU_ISA", compiled_isa().name}});
  EXPECT_THAT(
      [] {
        read_from({{"HETU_ISA", "sse9"}});
      },
      testing::ThrowsMessage<Error>(testing::AllOf(HasSubstr("HETU_ISA"), HasSubstr("sse9"),
                                                   HasSubstr(compiled_isa().name),
                                                   HasSubstr("./run install"))));
}

TEST(Env, ReadsWhatIsSet) {
  const Env e = read_from({{"HETU_TIMEOUT", "2.5"},
                           {"HETU_LOG_LEVEL", "debug"},
                           {"HETU_KERNELS", "reference"},
                           {"HETU_DEVICE", "far"},
                           {"HETU_DEVICES", "pipe_2_2"},
                           {"HETU_TRANSPORT", "pigeon"},
                           {"HETU_THREADS", "3"},
                           {"IMAGENET_TRAIN_ROOT", "images/train"},
                           {"IMAGENET_VAL_ROOT", "images/val"},
                           {"DEBUG_HETERO", "0.25"},
                           {"HETU_JOB", "ab12"},
                           {"HETU_HOSTS", "w0:8,w1:4"},
                           {"HETU_PROGRESS_FD", "7"},
                           {"OMPI_COMM_WORLD_RANK", "9"},
                           {"OMPI_COMM_WORLD_SIZE", "12"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(e.timeout_s, 2.5);
  EXPECT_EQ(e.log_level, Level::Debug);
  EXPECT_EQ(e.kernels, KernelChoice::Reference);
  EXPECT_EQ(e.device, "far");
  EXPECT_EQ(e.devices, "pipe_2_2");
  EXPECT_EQ(e.transport, "pigeon");
  EXPECT_EQ(e.threads, 3);
  EXPECT_EQ(e.imagenet_train_root, "images/train");
  EXPECT_EQ(e.imagenet_val_root, "images/val");
  EXPECT_EQ(e.debug_hetero, 0.25);
  EXPECT_EQ(e.job, "ab12");
  EXPECT_EQ(e.hosts, (std::vector<HostWorkers>{{"w0", 8}, {"w1", 4}}));
  EXPECT_EQ(e.progress_fd, 7);
  EXPECT_EQ(e.worker, 9);
  EXPECT_EQ(e.workers, 12);
  EXPECT_EQ(e.local_worker, 1);
  EXPECT_EQ(e.local_workers, 4);
}

// A check before a job starts uses the number of threads per worker that the job's workers will
// have.
TEST(Env, OfACheckCountsTheWorkersToCome) {
  EXPECT_FALSE(read_from({}).check);
  const Env e = read_from({{"HETU_CHECK", "12"}, {"HETU_HOSTS", "w0:8,w1:4"}});
  EXPECT_TRUE(e.check);
  EXPECT_EQ(e.workers, 12);
  EXPECT_EQ(e.local_workers, 8);
  EXPECT_EQ(e.worker, 0);
}

TEST(Env, OfAJobStartedByHandHasItsRanks) {
  const Env e = read_from({{"RANK", "2"},
                           {"WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "w7"},
                           {"MASTER_PORT", "29500"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"HETU_JOB_SECRET", "sesame"}});
  EXPECT_TRUE(e.by_hand);
  EXPECT_FALSE(e.one_host);
  EXPECT_EQ(std::tie(e.worker, e.workers, e.master_address, e.master_port, e.job_secret),
            std::make_tuple(2, 4, "w7", 29500, "sesame"));
  EXPECT_TRUE(read_from({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_SIZE", "4"}}).one_host);
  for (const char* v6 : {"::1", "[::1]"})
    EXPECT_EQ(read_from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", v6}}).master_address,
              "::1");
  EXPECT_EQ(read_from({{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}})
                .master_port,
            29501);
  EXPECT_FALSE(read_from({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).by_hand);
  EXPECT_FALSE(read_from({{"HETU_CHECK", "4"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}).by_hand);
  const Env under_mpi = read_from({{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "3"},
                                   {"PMIX_NAMESPACE", "job7"},
                                   {"RANK", "5"},
                                   {"WORLD_SIZE", "8"}});
  EXPECT_FALSE(under_mpi.by_hand);
  EXPECT_EQ(std::tie(under_mpi.worker, under_mpi.workers, under_mpi.launch_name),
            std::make_tuple(1, 3, "job7"));
}

TEST(Env, OfATaskOfSrunHasItsStep) {
  std::map<std::string, std::string> task{{"SLURM_PROCID", "3"},
                                          {"SLURM_NTASKS", "8"},
                                          {"SLURM_STEP_ID", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "4"},
                                          {"SLURM_JOB_ID", "77"},
                                          {"SLURM_STEP_NUM_NODES", "1"},
                                          {"SLURM_STEP_NODELIST", "w[03-04,9]"}};
  const Env one = read_from(task);
  EXPECT_TRUE(one.by_hand && one.one_host);
  EXPECT_EQ(std::tie(one.worker, one.workers, one.launch_name),
            std::make_tuple(3, 4, "slurm-77.1"));
  task["SLURM_STEP_NUM_NODES"] = "2";
  const Env two = read_from(task);
  EXPECT_FALSE(two.one_host);
  EXPECT_EQ(two.launch_name, "");
  EXPECT_EQ(two.master_address, "w03");
  EXPECT_TRUE(two.master_port >= 10000 && two.master_port < 30000);
  for (const auto& [list, first] : {std::pair("a7,b", "a7"), {"r[2,5]n[01-02]x,b", "r2n01x"}}) {
    task["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(read_from(task).master_address, first);
  }
  task["SLURM_STEP_ID"] = "2";
  EXPECT_NE(read_from(task).master_port, two.master_port);
  task["MASTER_ADDR"] = "chosen";
  task["MASTER_PORT"] = "5000";
  EXPECT_EQ(read_from(task).master_address, "chosen");
  EXPECT_EQ(read_from(task).master_port, 5000);
  task.erase("SLURM_STEP_ID");  // In a batch script there is one process.
  EXPECT_FALSE(read_from(task).by_hand);
}

TEST(Env, WrongValuesNameVariableValueAndRight) {
  struct Case {
    const char* name;
    const char* value;
    const char* right;
  };
  const Case cases[] = {
      {"HETU_TIMEOUT", "0", "seconds above 0"},
      {"HETU_TIMEOUT", "-1", "seconds above 0"},
      {"HETU_TIMEOUT", "nan", "seconds above 0"},
      {"HETU_TIMEOUT", "inf", "seconds above 0"},
      {"HETU_TIMEOUT", "300s", "e.g. 300"},
      {"HETU_LOG_LEVEL", "Debug", "one of debug, info, warning, error"},
      {"HETU_KERNELS", "fast", "one of auto, reference"},
      {"HETU_THREADS", "-1", "a whole number from 0 to 4096"},
      {"HETU_THREADS", "2.5", "a whole number"},
      {"HETU_THREADS", "99999999999", "a whole number"},
      {"HETU_HOSTS", "w0", "e.g. w0:8,w1:8"},
      {"HETU_HOSTS", "w0:8,", "e.g. w0:8,w1:8"},
      {"HETU_HOSTS", ":8", "e.g. w0:8,w1:8"},
      {"HETU_HOSTS", "w0:1,w0:1", "different hosts"},
      {"HETU_PROGRESS_FD", "-1", "a whole number"},
      {"OMPI_COMM_WORLD_RANK", "x", "a whole number"},
      {"OMPI_COMM_WORLD_RANK", "1", "below OMPI_COMM_WORLD_SIZE = 1"},
      {"OMPI_COMM_WORLD_SIZE", "0", "a whole number from 1"},
      {"MASTER_PORT", "65536", "a whole number from 1 to 65535"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "3", "below OMPI_COMM_WORLD_LOCAL_SIZE = 1"},
      {"DEBUG_HETERO", "-1", "seconds of at least 0"},
      {"DEBUG_HETERO", "0.1s", "see --hetero"},
  };
  for (const Case& c : cases) {
    try {
      read_from({{c.name, c.value}});
      ADD_FAILURE() << c.name << "=" << c.value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Config);
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("variable {}: got '{}'", c.name, c.value)));
      EXPECT_THAT(error.what(), HasSubstr(c.right));
    }
  }
}

TEST(Env, TheTableNamesEachVariableOnceAndSaysWhatItMeans) {
  std::set<std::string> names;
  for (const EnvRow& row : env_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_FALSE(row.set_by.empty()) << row.name;
    EXPECT_THAT(env_table_text(), HasSubstr("| `" + row.name + "` |"));
  }
}

TEST(Env, FindsMisspeltVariables) {
  EXPECT_THAT(unknown_variables({"HETU_TIMEOUT=1", "HETU_TIME_OUT=1", "PATH=/bin", "HETU_X="}),
              testing::ElementsAre("HETU_TIME_OUT", "HETU_X"));
}

}  // namespace
}  // namespace hetu
