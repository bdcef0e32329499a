// Environment variables: values, defaults, complaints and the table.
#include "config/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/base/error.h"

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
  EXPECT_EQ(e.job, "ab12");
  EXPECT_EQ(e.hosts, (std::vector<HostWorkers>{{"w0", 8}, {"w1", 4}}));
  EXPECT_EQ(e.progress_fd, 7);
  EXPECT_EQ(e.worker, 9);
  EXPECT_EQ(e.workers, 12);
  EXPECT_EQ(e.local_worker, 1);
  EXPECT_EQ(e.local_workers, 4);
}

// Before a job starts: as many threads per worker as its workers will have.
TEST(Env, OfACheckCountsTheWorkersToCome) {
  EXPECT_FALSE(read_from({}).check);
  const Env e = read_from({{"HETU_CHECK", "12"}, {"HETU_HOSTS", "w0:8,w1:4"}});
  EXPECT_TRUE(e.check);
  EXPECT_EQ(e.workers, 12);
  EXPECT_EQ(e.local_workers, 8);
  EXPECT_EQ(e.worker, 0);
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
      {"OMPI_COMM_WORLD_LOCAL_RANK", "3", "below OMPI_COMM_WORLD_LOCAL_SIZE = 1"},
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
