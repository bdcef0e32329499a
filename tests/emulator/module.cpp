#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/emulator/decode.h"
#include "tests/emulator/interpreter.h"
#include "tests/emulator/warp.h"

namespace hetu::emulator {
namespace {

std::string readable(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string made = status == 0 ? plain : name;
  std::free(plain);
  const std::size_t parameters = made.find(">(");
  return parameters == std::string::npos ? made : made.substr(0, parameters + 1);
}

std::string where(const unsigned (&x)[3]) { return fmt::format("{} x {} x {}", x[0], x[1], x[2]); }

void check(const Program& p, const Launch& launch, std::size_t shared) {
  const std::size_t threads = std::size_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > static_cast<std::size_t>(p.most_threads))
    throw Problem(fmt::format("kernel {}: {} threads a block, of which it has 1 to {}", p.name,
                              where(launch.block), p.most_threads));
  const std::size_t blocks = std::size_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (blocks == 0 || launch.grid[0] > 0x7fffffffu || launch.grid[1] > 65535 ||
      launch.grid[2] > 65535)
    throw Problem(fmt::format("kernel {}: a grid of {} blocks", p.name, where(launch.grid)));
  if (shared > kMostShared)
    throw Problem(fmt::format("kernel {}: {} bytes of shared memory, a card has {}", p.name, shared,
                              kMostShared));
}

void run_block(Block& block) {
  block.shared.begin();
  std::vector<std::unique_ptr<Warp>> warps;
  for (unsigned w = 0; w * kLanes < block.threads(); ++w)
    warps.push_back(std::make_unique<Warp>(block, w));
  for (;;) {
    bool all_ended = true;
    for (const auto& warp : warps) warp->run();
    for (const auto& warp : warps) all_ended = all_ended && warp->ended();
    if (all_ended) return;
    block.shared.pass_barrier();
    for (const auto& warp : warps) warp->pass_barrier();
  }
}

}  // namespace

struct Module::Parsed {
  std::string ptx;
  Text text;
  Globals globals;  ///< empty until a kernel has run
  std::map<std::string, Program> programs;
  std::mutex one_at_a_time;

  const Function& function(const std::string& entry) const {
    for (const Function& f : text.functions)
      if (f.entry && f.name == entry) return f;
    throw Problem("PTX has no kernel " + readable(entry));
  }
  const Program& program(const std::string& entry, Memory& memory) {
    const std::lock_guard lock(one_at_a_time);
    if (globals.empty()) place_variables(memory);
    const auto found = programs.find(entry);
    if (found != programs.end()) return found->second;
    Program made = make_program(ptx, text, function(entry), globals);
    made.name = readable(entry);
    return programs.emplace(entry, std::move(made)).first->second;
  }

 private:
  void place_variables(Memory& memory) {
    for (const Variable& v : text.variables) {
      if (v.space != "global" && v.space != "const") continue;
      void* const at = memory.allocate(v.bytes, Kind::Device);
      std::memset(at, 0, v.bytes);
      std::memcpy(at, v.values.data(), v.values.size());
      globals[v.name] = reinterpret_cast<std::uintptr_t>(at);
    }
  }
};

Module::Module(std::string ptx) : parsed_(std::make_unique<Parsed>()) {
  Parsed& p = *parsed_;
  p.ptx = std::move(ptx);
  p.text = read_module(p.ptx);
}
Module::~Module() = default;

std::vector<std::size_t> Module::parameters(const std::string& entry) const {
  std::vector<std::size_t> made;
  for (const Variable& v : parsed_->function(entry).parameters) made.push_back(v.bytes);
  return made;
}

void Module::run(const std::string& entry, const Launch& launch, Memory& memory) const {
  const Program& program = parsed_->program(entry, memory);
  const std::size_t shared_bytes =
      launch.shared_bytes == 0 ? program.static_shared : program.dynamic_at + launch.shared_bytes;
  check(program, launch, shared_bytes);
  SharedMemory shared(shared_bytes);
  Block block{program, launch, memory, shared, {}};
  memory.uses().begin_launch();
  block.parameters.resize(program.parameter_bytes);
  for (std::size_t i = 0; i < program.parameter_at.size(); ++i)
    std::memcpy(block.parameters.data() + program.parameter_at[i], launch.arguments[i],
                program.parameter_size[i]);
  for (block.index[2] = 0; block.index[2] < launch.grid[2]; ++block.index[2])
    for (block.index[1] = 0; block.index[1] < launch.grid[1]; ++block.index[1])
      for (block.index[0] = 0; block.index[0] < launch.grid[0]; ++block.index[0]) {
        ++block.number;
        run_block(block);
      }
}

}  // namespace hetu::emulator
