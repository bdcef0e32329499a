// Tests of the PTX interpreter with kernels written by hand: lanes that diverge and reconverge, and
// every mistake that it must report.
#include "tests/emulator/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

namespace hetu::emulator {
namespace {

constexpr unsigned kThreads = 64;

/// A kernel `k(out, count)` whose body begins with the thread in %r0 and `out` in %rd0.
class Kernel {
 public:
  explicit Kernel(const std::string& body, const std::string& before = "")
      : module_(".version 9.0\n.target sm_90\n.address_size 64\n" + before +
                ".entry k(\n.param .u64 out,\n.param .u32 count\n)\n{\n"
                ".reg .pred %p<8>;\n.reg .b16 %rs<8>;\n.reg .b32 %r<32>;\n.reg .f32 %f<16>;\n"
                ".reg .b64 %rd<16>;\n.reg .f64 %fd<8>;\n"
                ".shared .align 16 .b8 tile[1024];\n"
                "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [out];\nld.param.u32 %r31, [count];\n" +
                body + "\nret;\n}\n") {}

  /// Runs the kernel and returns the contents of `out`, one word per thread.
  std::vector<std::uint32_t> run(unsigned threads = kThreads, unsigned blocks = 1,
                                 std::uint32_t count = 0) {
    auto* const out = static_cast<std::uint32_t*>(
        memory_.allocate(sizeof(std::uint32_t) * threads * blocks, Kind::Device));
    void* const arguments[] = {const_cast<std::uint32_t**>(&out), &count};
    module_.run("k", {{blocks, 1, 1}, {threads, 1, 1}, 0, arguments}, memory_);
    return {out, out + std::size_t{threads} * blocks};
  }
  std::string problem(unsigned threads = kThreads) {
    try {
      run(threads);
    } catch (const Problem& p) {
      return p.what();
    }
    return "none";
  }

 private:
  Module module_;
  Memory memory_;
};

/// Stores %r1 to out[%r0].
const std::string kStore =
    "mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd2, %rd0, %rd1;\nst.global.u32 [%rd2], %r1;\n";
/// Computes the address of the thread's word of `tile` in %r2.
const std::string kMine = "mov.u32 %r2, tile;\nshl.b32 %r3, %r0, 2;\nadd.s32 %r2, %r2, %r3;\n";

TEST(Interpreter, LanesPartAndMeet) {
  // A loop that thread t leaves after t % 5 turns. Then all threads exchange their counts.
  Kernel kernel(
      "rem.u32 %r4, %r0, 5;\nmov.u32 %r1, 0;\n"
      "$again:\nsetp.ge.u32 %p1, %r1, %r4;\n@%p1 bra $done;\nadd.u32 %r1, %r1, 1;\nbra.uni "
      "$again;\n"
      "$done:\nshfl.sync.bfly.b32 %r1|%p2, %r1, 1, 31, -1;\n" +
      kStore);
  const std::vector<std::uint32_t> got = kernel.run();
  for (std::uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(got[t], (t ^ 1) % 5) << t;
}

TEST(Interpreter, BarriersCarryWordsBetweenWarps) {
  const std::string write = kMine + "st.shared.u32 [%r2], %r0;\n";
  const std::string read =
      "xor.b32 %r5, %r3, 252;\nmov.u32 %r6, tile;\nadd.s32 %r6, %r6, %r5;\n"
      "ld.shared.u32 %r1, [%r6];\n" +
      kStore;
  const std::vector<std::uint32_t> got = Kernel(write + "bar.sync 0;\n" + read).run();
  for (std::uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(got[t], 63 - t);
  EXPECT_THAT(Kernel(write + read).problem(),
              testing::HasSubstr("read byte"));  // by the other warp, before it was written
  EXPECT_THAT(
      Kernel(write + "bar.sync 0;\n" + kMine + "st.shared.u32 [%r2], %r0;\n" + read).problem(),
      testing::HasSubstr("since the last barrier"));
}

TEST(Interpreter, AWarpThatMeetsNeedsNoBarrier) {
  const std::string write = kMine + "st.shared.u32 [%r2], %r0;\n";
  const std::string read =
      "xor.b32 %r5, %r3, 4;\nmov.u32 %r6, tile;\nadd.s32 %r6, %r6, %r5;\n"
      "ld.shared.u32 %r1, [%r6];\n" +
      kStore;
  const std::vector<std::uint32_t> got = Kernel(write + "bar.warp.sync -1;\n" + read).run(32);
  for (std::uint32_t t = 0; t < 32; ++t) EXPECT_EQ(got[t], t ^ 1);
  EXPECT_THAT(Kernel(write + read).problem(32), testing::HasSubstr("wrote byte"));
  // The word is read before it is written again.
  EXPECT_THAT(
      Kernel(write + "bar.warp.sync -1;\n" + read + "st.shared.u32 [%r2], %r0;\n").problem(32),
      testing::HasSubstr("read byte"));
}

TEST(Interpreter, WhatIsBroughtMustBeWaitedFor) {
  const std::string source =
      "mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
      "add.u32 %r7, %r0, 100;\nst.global.u32 [%rd2], %r7;\n" +
      kMine + "cp.async.ca.shared.global [%r2], [%rd2], 4, 4;\n";
  const std::string read = "ld.shared.u32 %r1, [%r2];\n" + kStore;
  const std::vector<std::uint32_t> got = Kernel(source + "cp.async.wait_all;\n" + read).run();
  for (std::uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(got[t], t + 100);
  EXPECT_THAT(Kernel(source + read).problem(), testing::HasSubstr("has not been waited for"));
}

TEST(Interpreter, TellsWhereMemoryIsNot) {
  EXPECT_THAT(
      Kernel("mov.u32 %r1, 7;\nadd.u32 %r0, %r0, 1;\n" + kStore).problem(),
      testing::AllOf(testing::HasSubstr("thread 63"), testing::HasSubstr("are in no buffer"),
                     testing::HasSubstr("st.global.u32 [%rd2], %r1")));
  EXPECT_THAT(Kernel("ld.global.u32 %r1, [%rd0+2];\n").problem(),
              testing::HasSubstr("is not a multiple of 4"));
  EXPECT_THAT(Kernel("ld.global.v2.u32 {%r1, %r2}, [%rd0+4];\n").problem(),
              testing::HasSubstr("is not a multiple of 8"));
  EXPECT_THAT(Kernel("mov.u32 %r2, tile;\nst.shared.u32 [%r2+1024], %r2;\n").problem(),
              testing::HasSubstr("4 bytes at 1024 of shared memory, which has 1024"));
  EXPECT_THAT(Kernel("mov.u64 %rd3, 0;\nld.global.u32 %r1, [%rd3];\n").problem(),
              testing::HasSubstr("are in no buffer"));
  EXPECT_THAT(Kernel("ld.param.u32 %r1, [out+16];\n").problem(),
              testing::HasSubstr("parameters, which has"));
}

TEST(Interpreter, BlocksMayNotDependOnEachOther) {
  const std::string all = "mov.u32 %r1, 5;\n";
  const auto of_two = [](const std::string& body) {
    try {
      Kernel(body).run(32, 2);
    } catch (const Problem& p) {
      return std::string(p.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(of_two(all + kStore),
              testing::HasSubstr("block 0 of this launch has written there, too"));
  const std::string own = "mov.u32 %r8, %ctaid.x;\nshl.b32 %r9, %r8, 5;\nadd.s32 %r0, %r0, %r9;\n";
  EXPECT_EQ(of_two(all + own + kStore), "none");
  EXPECT_THAT(of_two(all + own + kStore + "ld.global.u32 %r5, [%rd0];\n"),
              testing::HasSubstr("block 0 of this launch has written there"));
  EXPECT_THAT(of_two(all + "ld.global.u32 %r5, [%rd0+128];\n" + own + kStore),
              testing::HasSubstr("block 0 of this launch has read there"));
}

TEST(Interpreter, TellsOfLanesThatAreMissing) {
  const std::string part = "setp.lt.u32 %p1, %r0, 8;\n@%p1 bra $over;\n";
  EXPECT_THAT(Kernel(part + "shfl.sync.bfly.b32 %r1|%p2, %r0, 1, 31, -1;\nbra.uni $end;\n"
                            "$over:\nbar.sync 0;\n$end:\n")
                  .problem(),
              testing::HasSubstr("wait for others"));
  EXPECT_THAT(Kernel(part + "bra.uni $end;\n$over:\nret;\n$end:\n"
                            "shfl.sync.bfly.b32 %r1|%p2, %r0, 1, 31, -1;\n")
                  .problem(),
              testing::HasSubstr("has ended"));
  EXPECT_THAT(Kernel(part + "shfl.sync.idx.b32 %r1|%p2, %r0, 0, 31, -256;\n$over:\n").problem(),
              testing::HasSubstr("lane 0, which takes no part"));
}

TEST(Interpreter, TellsWhatItDoesNotKnow) {
  EXPECT_THAT(Kernel("nosuch.u32 %r1, %r2;\n").problem(),
              testing::HasSubstr("not known to the emulator: nosuch.u32 %r1, %r2"));
  EXPECT_THAT(Kernel("add.u32 %r1, %r2, %r99;\n").problem(),
              testing::HasSubstr("unknown operand %r99"));
  EXPECT_THAT(Kernel("add.u32 %r1, %r2, %rd2;\n").problem(),
              testing::HasSubstr("operand 2 has 8 bytes for 4"));
  EXPECT_THAT(Kernel("bar.sync 1;\n").problem(), testing::HasSubstr("no barrier but that of all"));
  EXPECT_THAT(Kernel("").problem(2048), testing::HasSubstr("threads a block"));
}

struct Computed {
  const char* body;
  std::uint32_t want;
};

TEST(Interpreter, ComputesAsTheIsaSays) {
  const Computed all[] = {
      {"mov.u32 %r4, 0x80000000;\nshr.s32 %r1, %r4, 40;\n", 0xffffffffu},
      {"mov.u32 %r4, 0x80000000;\nshr.u32 %r1, %r4, 40;\n", 0},
      {"mov.u32 %r4, -7;\ndiv.s32 %r1, %r4, 2;\n", static_cast<std::uint32_t>(-3)},
      {"mov.u32 %r4, 0x12345678;\nprmt.b32 %r1, %r4, 0, 0x0123;\n", 0x78563412u},
      {"mov.u32 %r4, 5;\nmov.u32 %r5, 0xff;\nbfi.b32 %r1, %r4, %r5, 4, 4;\n", 0x5fu},
      {"mov.u32 %r4, -1;\nadd.cc.u32 %r5, %r4, 1;\naddc.u32 %r1, %r5, 0;\n", 1},
      {"mov.u32 %r4, -1;\nmul.hi.u32 %r1, %r4, %r4;\n", 0xfffffffeu},
      {"mov.u32 %r4, -2;\nmul.wide.s32 %rd3, %r4, 3;\ncvt.u32.u64 %r1, %rd3;\n",
       static_cast<std::uint32_t>(-6)},
      {"mov.f32 %f1, 0f7FC00000;\nsetp.neu.f32 %p1, %f1, %f1;\nselp.b32 %r1, 1, 2, %p1;\n", 1},
      {"mov.f32 %f1, 0f7FC00000;\nsetp.ne.f32 %p1, %f1, %f1;\nselp.b32 %r1, 1, 2, %p1;\n", 2},
      {"mov.f32 %f1, 0fC0200000;\ncvt.rni.s32.f32 %r1, %f1;\n", static_cast<std::uint32_t>(-2)},
      {"mov.f32 %f1, 0f4F800000;\ncvt.rzi.s32.f32 %r1, %f1;\n", 0x7fffffffu},
      {"mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, 0f40000000;\n{ cvt.rn.bf16x2.f32 %r1, %f1, %f2; }\n",
       0x3f804000u},
      {"mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, 0fBF000000;\ncopysign.f32 %f3, %f2, %f1;\n"
       "mov.b32 %r1, %f3;\n",
       0xbf800000u},
      {"mov.f64 %fd1, 0d3FF8000000000000;\nmov.b64 {%r4, %r1}, %fd1;\n", 0x3ff80000u},
      {"mov.u32 %r4, 0x10003;\nmov.b32 {%rs1, %rs2}, %r4;\ncvt.u32.u16 %r1, %rs1;\n", 3},
      {"setp.lt.u32 %p1, %r0, 1;\nvote.sync.ballot.b32 %r1, %p1, -1;\n", 1},
  };
  for (const Computed& c : all)
    EXPECT_EQ(Kernel(std::string(c.body) + kStore).run(32)[0], c.want) << c.body;
}

TEST(Interpreter, CallsFunctions) {
  Kernel kernel(
      "cvt.rn.f64.u32 %fd1, %r0;\n{\n.param .b64 param0;\nst.param.f64 [param0+0], %fd1;\n"
      ".param .b64 retval0;\ncall.uni (retval0),\ntwice,\n(\nparam0\n);\nld.param.f64 %fd2, "
      "[retval0+0];\n}\n"
      "cvt.rzi.u32.f64 %r1, %fd2;\n" +
          kStore,
      ".func (.param .b64 result) twice(\n.param .b64 twice_param_0\n)\n{\n.reg .f64 %fd<3>;\n"
      "ld.param.f64 %fd1, [twice_param_0];\nadd.f64 %fd2, %fd1, %fd1;\nst.param.f64 [result+0], "
      "%fd2;\n"
      "ret;\n}\n");
  const std::vector<std::uint32_t> got = kernel.run();
  for (std::uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(got[t], 2 * t);
}

TEST(Interpreter, ReadsVariables) {
  Kernel kernel(
      "mov.u64 %rd3, table;\nand.b32 %r4, %r0, 3;\ncvt.u64.u32 %rd4, %r4;\nadd.s64 %rd3, %rd3, "
      "%rd4;\n"
      "ld.global.u8 %rs1, [%rd3];\ncvt.u32.u16 %r1, %rs1;\n" +
          kStore,
      ".global .align 4 .b8 table[4] = {9, 8, 7, 200};\n");
  const std::vector<std::uint32_t> got = kernel.run();
  EXPECT_EQ(got[1], 8u);
  EXPECT_EQ(got[63], 200u);
}

TEST(Interpreter, MultipliesMatrices) {
  // The element of a in row i and column 3 is i, and the element of b in row 3 is its column. All
  // others are 0. Lanes hold the elements as the ISA's figures show.
  Kernel kernel(
      "shr.u32 %r4, %r0, 2;\nand.b32 %r5, %r0, 3;\n"  // g, t
      "cvt.rn.f32.u32 %f1, %r4;\nadd.f32 %f2, %f1, 0f41000000;\n"
      "setp.eq.u32 %p1, %r5, 3;\nselp.f32 %f3, %f1, 0f00000000, %p1;\nselp.f32 %f4, %f2, "
      "0f00000000, %p1;\n"
      "mov.b32 %r6, %f3;\nmov.b32 %r7, %f4;\nmov.b32 %r8, 0;\nmov.f32 %f5, 0f00000000;\n"
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f6, %f7, %f8, %f9}, {%r6, %r7, %r8, "
      "%r8}, "
      "{%r6, %r8}, {%f5, %f5, %f5, %f5};\n"
      "cvt.rzi.u32.f32 %r1, %f9;\n" +
      kStore);
  const std::vector<std::uint32_t> got = kernel.run(32);
  for (std::uint32_t lane = 0; lane < 32; ++lane)  // row g + 8, column 2 t + 1
    EXPECT_EQ(got[lane], (lane / 4 + 8) * (lane % 4 * 2 + 1));
}

}  // namespace
}  // namespace hetu::emulator
