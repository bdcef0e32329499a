// Tests the cores and memory that control groups leave to a process. The files imitate containers
// of both versions.
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <map>

#include "base/control_groups.h"
#include "base/machine_cores.h"
#include "base/processor.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using Files = std::map<std::string, std::string>;

int cores_with(const Files& files) {
  const TemporaryFolder folder;
  for (const auto& [path, text] : files) {
    const std::filesystem::path to = folder / path;
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to) << text << '\n';
  }
  return cores_of_control_groups(folder.path());
}

TEST(MachineCores, AreThoseOfAContainersQuotaRoundedUp) {
  for (const auto& [text, cores] : std::map<std::string, int>{{"200000 100000", 2},
                                                              {"150000 100000", 2},
                                                              {"50000 100000", 1},
                                                              {"1000 100000", 1},
                                                              {"6400000 100000", 64},
                                                              {"max 100000", 0}})
    EXPECT_EQ(cores_with({{"proc/self/cgroup", "0::/"}, {"sys/fs/cgroup/cpu.max", text}}), cores)
        << text;
}

TEST(MachineCores, AreThoseOfTheTightestGroupOnTheWay) {
  const std::string groups = "sys/fs/cgroup/";
  Files files = {{"proc/self/cgroup", "0::/kubepods/pod1/box"},
                 {groups + "kubepods/cpu.max", "800000 100000"},
                 {groups + "kubepods/pod1/cpu.max", "300000 100000"},
                 {groups + "kubepods/pod1/box/cpu.max", "max 100000"}};
  EXPECT_EQ(cores_with(files), 3);
  files[groups + "kubepods/pod1/box/cpu.max"] = "100000 100000";
  EXPECT_EQ(cores_with(files), 1);
  files[groups + "kubepods/pod2/cpu.max"] = "10000 100000";  // another group's limit
  files[groups + "kubepods/cpu.max"] = "200000 100000";
  EXPECT_EQ(cores_with(files), 1);
}

TEST(MachineCores, AreThoseOfVersionOneInsideAndOutside) {
  const std::string list = "5:memory:/docker/box\n4:cpu,cpuacct:/docker/box\n0::/docker/box";
  const std::string both = "sys/fs/cgroup/cpu,cpuacct/", one = "sys/fs/cgroup/cpu/";
  // Inside the container, the group that the list names is mounted at the root.
  EXPECT_EQ(cores_with({{"proc/self/cgroup", list},
                        {both + "cpu.cfs_quota_us", "250000"},
                        {both + "cpu.cfs_period_us", "100000"}}),
            3);
  EXPECT_EQ(cores_with({{"proc/self/cgroup", list},
                        {one + "docker/box/cpu.cfs_quota_us", "40000"},
                        {one + "docker/box/cpu.cfs_period_us", "20000"},
                        {one + "cpu.cfs_quota_us", "-1"},
                        {one + "cpu.cfs_period_us", "100000"}}),
            2);
  EXPECT_EQ(cores_with({{"proc/self/cgroup", list},
                        {"sys/fs/cgroup/memory/cpu.cfs_quota_us", "100000"},
                        {"sys/fs/cgroup/memory/cpu.cfs_period_us", "100000"}}),
            0);
}

TEST(MachineCores, HaveNoLimitWhereNothingSaysSo) {
  EXPECT_EQ(cores_with({}), 0);
  EXPECT_EQ(cores_with({{"proc/self/cgroup", "0::/"}}), 0);
  for (const char* text : {"", "100000", "100000 0", "-1 100000", "two 100000"})
    EXPECT_EQ(cores_with({{"proc/self/cgroup", "0::/"}, {"sys/fs/cgroup/cpu.max", text}}), 0)
        << text;
  for (const char* lines : {"nonsense", "0:", "0::", "0::relative", "::", "1:cpu"})
    EXPECT_EQ(cores_with({{"proc/self/cgroup", lines}, {"sys/fs/cgroup/cpu.max", "100000 100000"}}),
              0)
        << lines;
}

TEST(MachineCores, AreNoMoreThanThisThreadMayBePutOn) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(machine_cores(), 1);
  EXPECT_LE(machine_cores(), CPU_COUNT(&all));
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(machine_cores(), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(ControlGroups, OfMemoryAreOfItsController) {
  const TemporaryFolder folder;
  const std::string& root = folder.path();
  std::filesystem::create_directories(folder / "proc/self");
  std::ofstream(folder / "proc/self/cgroup") << "4:memory:/a\n3:cpu:/b\n0::/\n";
  const std::string v1 = root + "/sys/fs/cgroup/memory/", v2 = root + "/sys/fs/cgroup/";
  EXPECT_EQ(control_group_files("memory.max", "memory", "memory.limit_in_bytes", root),
            (std::vector<std::string>{v1 + "memory.limit_in_bytes", v1 + "a/memory.limit_in_bytes",
                                      v2 + "memory.max", v2 + "unified/memory.max"}));
}

TEST(Processor, LacksTheFeaturesThatItsFlagsDoNotName) {
  const std::string cpuinfo =
      "processor\t: 0\nmodel name\t: A CPU with avx512_bf16 in its name\n"
      "flags\t\t: fpu sse2 avx2 fma avx512f\n";
  EXPECT_EQ(missing_features({"avx2", "fma"}, cpuinfo), std::vector<std::string>{});
  EXPECT_EQ(missing_features({"avx2", "avx512_bf16", "avx512", "bmi2"}, cpuinfo),
            (std::vector<std::string>{"avx512_bf16", "avx512", "bmi2"}));
  EXPECT_EQ(missing_features({"avx2"}, "Features\t: fp asimd\n"), std::vector<std::string>{})
      << "no line of flags: another architecture";
}

TEST(Processor, RunsTheKernelsOfThisBuild) {
  require_processor();
  if (compiled_isa().name == "avx2") {
    EXPECT_EQ(std::count(compiled_isa().features.begin(), compiled_isa().features.end(), "avx512f"),
              0);
  }
}

}  // namespace
}  // namespace hetu
