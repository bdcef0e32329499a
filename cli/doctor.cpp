// `hetu doctor`: tries each part of Hetu on this machine, reports what works, and names what to
// install for missing parts.
#include <sys/statvfs.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"
#include "base/machine_cores.h"
#include "base/processor.h"
#include "base/words.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/outside.h"
#include "datasets/hdf5_file.h"
#include "datasets/image.h"
#include "executor/job/links.h"
#include "net/transport/connect.h"
#include "net/transport/zmq.h"
#include "ops/registry.h"
#include "pipeline/generate/generate.h"
#include "pipeline/render/render.h"
#include "pipeline/simulate/simulate.h"

namespace hetu::cli {
namespace {

constexpr double kTryTimeout_s = 60;  // longest time of a trial in seconds

/// The result of a trial.
struct Finding {
  enum class State { Works, Missing, Broken };
  State state = State::Works;
  std::string text;
};

Finding works(std::string text) { return {Finding::State::Works, std::move(text)}; }
Finding missing(std::string text) { return {Finding::State::Missing, std::move(text)}; }
Finding broken(std::string text) { return {Finding::State::Broken, std::move(text)}; }

// One trial. `install` says what to do if the part is missing.
struct Trial {
  const char* name;
  std::string install;
  std::function<Finding()> attempt;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Runs a trial of a part of the build. A part that was left out of the build throws Unsupported.
Finding tried(const std::function<std::string()>& work) {
  try {
    return works(work());
  } catch (const Error& e) {
    return e.code() == Code::Unsupported ? missing("not in this build") : broken(e.what());
  }
}

Finding processor() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  const int cores = machine_cores();
  return works(fmt::format("{} core{} for this process, {:.1f} GiB of memory", cores,
                           cores == 1 ? "" : "s", gib));
}

// Workers of one host exchange messages through /dev/shm under Open MPI.
Finding shared_memory() {
  struct statvfs there = {};
  if (statvfs("/dev/shm", &there) != 0 || access("/dev/shm", W_OK) != 0)
    return broken(
        "/dev/shm is not writable; workers on one host exchange messages through files "
        "instead");
  const double mib =
      static_cast<double>(there.f_bavail) * static_cast<double>(there.f_frsize) / (1 << 20);
  if (mib < 64)
    return broken(
        fmt::format("/dev/shm has {:.0f} MiB left; give it 64 MiB or more (in a container: "
                    "--shm-size)",
                    mib));
  return works(fmt::format("/dev/shm, {:.0f} MiB free", mib));
}

Finding kernels() {
  return tried([] {
    std::size_t operators = 0, fast = 0;
    for (const OpDef& def : op_set().all()) {
      if (def.name == "placeholder" || def.name == "parameter") continue;
      ++operators;
      fast += cpu_kernels(def.name).size() > 1 ? 1 : 0;
    }
    require_processor();
    return fmt::format(
        "{} operators on the CPU, {} of them with a second, faster kernel; compiled for {}",
        operators, fast, compiled_isa().name == "native" ? "this processor" : compiled_isa().name);
  });
}

// Starts one worker under mpirun, which joins a job of its own.
Finding mpi() {
  const Ended version = run_outside({"mpirun", "--version"}, kTryTimeout_s, Errors::Capture);
  if (version.status == 127) return missing("mpirun is not found");
  const Ended hello = run_outside(
      {"mpirun", "-n", "1", own_program(), "doctor", "--hello"}, kTryTimeout_s, Errors::Capture,
      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "HETU_TRANSPORT=mpi"});
  const std::string wanted = "hello from worker 0 of 1";
  if (hello.status == 0 && hello.output.find(wanted) != std::string::npos)
    return works(fmt::format("{}: {}", first_line(version.output), wanted));
  if (hello.output.find("has no MPI") != std::string::npos)
    return missing("mpirun is found, but this build has no MPI");
  return broken(fmt::format("a job of one worker ended with status {}: {}", hello.status,
                            first_line(hello.output)));
}

Finding ssh() {
  const Ended version = run_outside({"ssh", "-V"}, kTryTimeout_s, Errors::Capture);
  if (version.status != 0) return missing("ssh is not found, so jobs can only run on this host");
  return works(first_line(version.output));
}

Finding zeromq() {
  return tried([] {
    const std::string zeros(64, '0');
    const auto mesh = comm::open_mesh({0, 1, "tcp://127.0.0.1:*", zeros, zeros});
    return "listens at " + mesh->endpoint();
  });
}

Finding hdf5() {
  try {
    const Hdf5File none(own_program());  // the program is not an HDF5 file
  } catch (const Error& e) {
    if (e.code() == Code::Unsupported) return missing("not in this build");
    if (e.code() == Code::Io) return works("the library loads and rejects a file that is not HDF5");
    return broken(e.what());
  }
  return broken("the library accepts a program as an HDF5 file");
}

Finding jpeg() {
  return tried([] {
    Image grey{8, 8, std::vector<std::uint8_t>(192, 128)}, back;
    const std::string trouble = decode_image(encode_jpeg(grey, 90), back);
    require(trouble.empty() && back.width == 8, "a JPEG that it wrote cannot be read back: {}",
            trouble);
    return std::string("writes and reads a JPEG");
  });
}

Finding opencv() {
  return tried([] {
    const std::string text = "P6\n2 1\n255\nabcdef";
    Image image;
    const std::string trouble = decode_image({text.begin(), text.end()}, image);
    require(trouble.empty() && image.rgb == std::vector<std::uint8_t>(text.end() - 6, text.end()),
            "a PNM image is not read correctly: {}", trouble);
    return std::string("the module loads and reads a PNM image");
  });
}

Finding python() {
  const std::string name = sibling_program(own_program(), "python3");
  const Ended found =
      run_outside({name, "-c",
                   "import sys, hetu\nprint('Python', sys.version.split()[0] + ', hetu', "
                   "hetu.__version__, 'from', hetu.__file__)"},
                  kTryTimeout_s, Errors::Capture);
  if (found.status == 127) return missing("python3 is not found");
  if (found.status == 0) return works(first_line(found.output));
  const std::string text = found.output.substr(0, found.output.find_last_not_of('\n') + 1);
  return missing("python3 cannot import hetu: " + text.substr(text.rfind('\n') + 1));
}

Finding module(const std::string& name) {
  const Ended found = run_outside({sibling_program(own_program(), "python3"), "-c",
                                   fmt::format("import {0}; print('{0}', {0}.__version__)", name)},
                                  kTryTimeout_s);
  return found.status == 0 ? works(first_line(found.output)) : missing("not found by python3");
}

// Asks the Python module, which does the training. This program itself supports the CPU only.
Finding gpu() {
  const Ended asked = run_outside({sibling_program(own_program(), "python3"), "-c",
                                   "from hetu import _hetu; print(_hetu.cuda_problem())"},
                                  kTryTimeout_s);
  if (asked.status != 0) return missing("not checked, because python3 cannot import hetu");
  const std::string problem = first_line(asked.output);
  return problem.empty() ? works("this machine has a GPU that this build has kernels for")
                         : missing(problem);
}

std::vector<Trial> trials() {
  const std::string again = ", then configure and build again";
  return {
      {"processor", "", processor},
      {"shared memory", "", shared_memory},
      {"kernels", "", kernels},
      {"Open MPI", "libopenmpi-dev openmpi-bin" + again, mpi},
      {"ssh", "openssh-client", ssh},
      {"ZeroMQ", "libzmq3-dev cppzmq-dev" + again, zeromq},
      {"HDF5", "libhdf5-dev" + again, hdf5},
      {"JPEG and PNG", "libjpeg-dev libpng-dev" + again, jpeg},
      {"OpenCV", "libopencv-imgcodecs-dev" + again, opencv},
      {"Python", "source .venv/bin/activate, or hetu.exp; else python3-dev and nanobind" + again,
       python},
      {"CUDA", "see docs/gpu.md (only needed to train on a GPU)", gpu},
      {"NumPy", "pip install numpy", [] { return module("numpy"); }},
      {"h5py", "pip install h5py (hetu data sample)", [] { return module("h5py"); }},
      {"pyarrow", "pip install pyarrow (hetu.data.Table)", [] { return module("pyarrow"); }},
  };
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put("usage: hetu doctor\n"
        "Tests the programs and libraries that Hetu uses on this machine. Prints what works, what "
        "is\n"
        "missing, and what to install. Missing parts are optional; exits 1 if a part that is there "
        "does\n"
        "not work.\n",
        "");
    return 0;
  }
  if (arguments == Arguments{"--hello"}) {  // this process is the worker of a trial
    const auto links = comm::connect("mpi", link_options());
    put(fmt::format("hello from worker {} of {}\n", links->worker(), links->workers()), "");
    return 0;
  }
  require(arguments.empty(), "takes no arguments, got '{}'", arguments.empty() ? "" : arguments[0]);
  int wrong = 0, absent = 0;
  for (const Trial& trial : trials()) {
    const Finding found = trial.attempt();
    const bool is_broken = found.state == Finding::State::Broken;
    const bool is_missing = found.state == Finding::State::Missing;
    wrong += is_broken ? 1 : 0;
    absent += is_missing ? 1 : 0;
    std::string line = fmt::format("{:<8}{:<15}{}",
                                   is_broken    ? "WRONG"
                                   : is_missing ? "missing"
                                                : "works",
                                   trial.name, found.text);
    if (is_missing && !trial.install.empty()) line += "; install: " + trial.install;
    put(line + "\n", "");
  }
  put(wrong > 0    ? fmt::format("{} parts do not work\n", wrong)
      : absent > 0 ? fmt::format("everything that is installed works; {} optional parts are "
                                 "missing\n",
                                 absent)
                   : "everything works\n",
      "");
  return wrong > 0 ? 1 : 0;
}

}  // namespace hetu::cli
