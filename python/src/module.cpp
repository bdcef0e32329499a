// The Python module: one Python exception per error code, and the parts in bind_*.cpp.
#include <exception>
#include <string_view>

#include "base/error.h"
#include "base/standard_streams.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace {

PyObject* g_config_error = nullptr;
PyObject* g_comm_error = nullptr;

PyObject* exception_of(hetu::Code code) {
  switch (code) {
    case hetu::Code::InvalidArgument:
    case hetu::Code::Plan:
      return PyExc_ValueError;
    case hetu::Code::Config:
      return g_config_error;
    case hetu::Code::Unsupported:
      return PyExc_NotImplementedError;
    case hetu::Code::Io:
      return PyExc_OSError;
    case hetu::Code::Comm:
      return g_comm_error;
    case hetu::Code::Timeout:
      return PyExc_TimeoutError;
    case hetu::Code::Internal:
      break;
  }
  return PyExc_RuntimeError;
}

}  // namespace

NB_MODULE(_hetu, m) {
  hetu::reserve_standard_streams();
  g_config_error = PyErr_NewException("hetu.ConfigError", PyExc_ValueError, nullptr);
  g_comm_error = PyErr_NewException("hetu.CommError", PyExc_ConnectionError, nullptr);
  m.attr("__version__") = HETU_VERSION;
  m.attr("ConfigError") = nb::handle(g_config_error);
  m.attr("CommError") = nb::handle(g_comm_error);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const hetu::Error& error) {
      // A message may quote a damaged file, which need not be UTF-8.
      const std::string_view text = error.what();
      const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
          text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
      PyErr_SetObject(exception_of(error.code()), message.ptr());
    }
  });
  m.def(
      "expect_leaks", [] { nb::set_leak_warnings(false); },
      "Declares that objects which exist at the end of the process, from now on, are not leaks.");
  m.def(
      "keep_forever", [](const nb::object& held) { held.inc_ref(); },
      "Never destroys the object. A forked child needs this, because it lacks the object's "
      "threads.");
  hetu::bind_env(m);
  hetu::bind_schedule(m);
  hetu::bind_options(m);
  hetu::bind_stop(m);
  hetu::bind_training_parts(m);
}
