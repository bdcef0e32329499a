// Streams, events and graphs of the CUDA runtime, implemented on the emulated GPU.
// Source: NVIDIA, CUDA Runtime API 13.0.
#include <utility>

#include "tests/emulator/runtime.h"

using namespace hetu::emulator;  // NOLINT: what follows has the library's names

extern "C" {

// ---- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned, int) {
  return guarded([&](Card& c) {
    *to = c.name<cudaStream_t>();
    c.streams[*to] = std::make_shared<Stream>(&c.one_at_a_time);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&](Card& c) {
    std::shared_ptr(c.stream(stream))->finish();
    c.streams.erase(stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&](Card& c) {
    if (may_not_wait(c)) return cudaErrorStreamCaptureUnsupported;
    std::shared_ptr(c.stream(stream))->finish();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return guarded([&](Card& c) {
    if (c.stream(stream)->captures()) {
      c.stream(stream)->break_capture();
      return cudaErrorStreamCaptureIsolation;
    }
    c.give(stream, [at = known(c.events, event, "event")] { at.wait(); });
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned) {
  return guarded([&](Card& c) {
    *to = c.name<cudaEvent_t>();
    c.events[*to] = Event();
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return guarded([&](Card& c) {
    c.events.erase(event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded([&](Card& c) {
    if (c.stream(stream)->captures()) {
      c.stream(stream)->break_capture();
      return cudaErrorStreamCaptureUnsupported;
    }
    known(c.events, event, "event").record(c.stream(stream));
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&](Card& c) {
    if (may_not_wait(c)) return cudaErrorStreamCaptureUnsupported;
    Event(known(c.events, event, "event")).wait();
    return cudaSuccess;
  });
}

// ---- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return guarded([&](Card& c) {
    c.stream(stream)->capture(mode == cudaStreamCaptureModeGlobal);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* to) {
  return guarded([&](Card& c) {
    bool whole = false;
    std::vector<Work> work = c.stream(stream)->captured(whole);
    if (!whole) return cudaErrorStreamCaptureInvalidated;
    *to = c.name<cudaGraph_t>();
    c.graphs[*to] = std::move(work);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long) {
  return guarded([&](Card& c) {
    *to = c.name<cudaGraphExec_t>();
    c.executables[*to] = known(c.graphs, graph, "graph");
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return guarded([&](Card& c) {
    for (const Work& one : known(c.executables, graph, "instance of a graph")) c.give(stream, one);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return guarded([&](Card& c) {
    c.graphs.erase(graph);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return guarded([&](Card& c) {
    c.executables.erase(graph);
    return cudaSuccess;
  });
}

}  // extern "C"
