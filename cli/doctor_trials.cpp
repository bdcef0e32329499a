// The trials of `hetu doctor` in a build with training.
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/processor.h"
#include "cli/doctor.h"
#include "cli/outside.h"
#include "datasets/hdf5_file.h"
#include "datasets/image.h"
#include "executor/job/links.h"
#include "net/transport/connect.h"
#include "net/transport/zmq.h"
#include "ops/registry.h"

namespace hetu::cli {
namespace {

// Runs a trial of a part of the build. A part that was left out of the build throws Unsupported.
Finding tried(const std::function<std::string()>& work) {
  try {
    return works(work());
  } catch (const Error& e) {
    return e.code() == Code::Unsupported ? missing("not in this build") : broken(e.what());
  }
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

}  // namespace

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

std::string greeting_of_worker() {
  const auto links = comm::connect("mpi", link_options());
  return fmt::format("hello from worker {} of {}", links->worker(), links->workers());
}

}  // namespace hetu::cli
