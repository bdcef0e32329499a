// Clients of parameter servers for Python. hetu.ps is the public interface.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>
#include <map>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/words.h"
#include "config/env.h"
#include "executor/stage/optimizer.h"
#include "net/wire/connection_file.h"
#include "ps/client/client_state.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"
#include "python/src/set_fields.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using Read = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Written = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
constexpr auto kSignals = std::chrono::milliseconds(100);  // interval between checks for Ctrl-C

ps::ServerOptimizer optimizer_from(const nb::dict& values) {
  OptimizerConfig config =
      defaults_of(parse_optimizer(nb::cast<std::string>(values.get("kind", nb::str("")))));
  config.clip_norm = 0;
  nb::dict settings;
  for (const auto& [key, value] : values) {
    if (nb::cast<std::string>(key) != "kind") settings[key] = value;
  }
  set_fields(fields(config), settings);
  check_optimizer(config);
  require(config.clip_norm == 0,
          "parameter servers do not clip gradients; clip_norm must be 0, got {:g}",
          config.clip_norm);
  return {config, {}};
}

/// A client, and the memory that its pending pulls fill.
class PythonClient {
 public:
  PythonClient(const std::string& where, int worker, double timeout_s) {
    const nb::gil_scoped_release release;
    client_ = ps::connect_servers(
        ps::address_from(where),
        {.worker = worker, .timeout_s = timeout_s > 0 ? timeout_s : env().timeout_s});
  }
  ~PythonClient() { abandon(); }
  PythonClient(const PythonClient&) = delete;
  PythonClient& operator=(const PythonClient&) = delete;

  int open(const ps::Table& table, int member, const Read& initial) {
    return patiently([&] { return client().open(table, member, initial.data()); });
  }
  void push(int table, const Read& values, const nb::object& rate) {
    std::vector<float> copy(values.data(), values.data() + values.size());
    if (rate.is_none()) return client().push(table, std::move(copy));
    client().push(table, std::move(copy), nb::cast<double>(rate));
  }
  void pull(int table, const nb::object& least, Written into, std::int64_t to_come) {
    const auto clock = least.is_none() ? ps::kAnyClock : nb::cast<std::int64_t>(least);
    client().pull(table, clock, into.data(), to_come);
    filled_.insert_or_assign(table, std::move(into));
  }
  std::vector<std::int64_t> wait(int table, const std::string& what) {
    const ps::Pulled pulled = patiently([&] { return client().wait(table, [&] { return what; }); });
    filled_.erase(table);
    return pulled.updates;
  }
  nb::tuple states(int table, Written into) {
    const ps::OptimizerStates found =
        patiently([&] { return client().states(table, into.data()); });
    nb::list states;
    for (const std::vector<float>& state : found.states)
      states.append(own_array<float>(state, {state.size()}));
    return nb::make_tuple(states, found.updates);
  }
  void flush() {
    patiently([&] { return client().flush(), 0; });
  }
  void leave() {
    if (client_ == nullptr) return;
    patiently([&] { return client().leave(), 0; });
    abandon();
  }
  /// Ends the client. If it has not left, the servers treat the worker as silent.
  void abandon() {
    if (client_ == nullptr) return;
    const nb::gil_scoped_release release;
    end("the client has ended");
    client_.reset();
  }

 private:
  ps::ParameterClient& client() {
    require(client_ != nullptr, "this client has left its parameter servers; create a new client");
    return *client_;
  }
  void end(const std::string& why) {
    if (auto* state = dynamic_cast<ps::client::ClientState*>(client_.get())) {
      state->die(Code::Comm, why);
    }
  }
  /// Runs a blocking call on a thread of its own, and checks for Ctrl-C in the meantime. Ctrl-C
  /// ends the client.
  template <class Work>
  std::invoke_result_t<const Work&> patiently(const Work& work) {
    client();
    auto done = std::async(std::launch::async, work);
    while (true) {
      {
        const nb::gil_scoped_release release;
        if (done.wait_for(kSignals) == std::future_status::ready) break;
      }
      if (PyErr_CheckSignals() == 0) continue;
      nb::python_error interrupted;
      end("the client was interrupted");
      {
        const nb::gil_scoped_release release;
        done.wait();
      }
      throw interrupted;
    }
    return done.get();
  }

  std::map<int, Written> filled_;  // destroyed after client_, which writes to it
  std::unique_ptr<ps::ParameterClient> client_;
};

}  // namespace

void bind_ps(nb::module_& m) {
  nb::class_<PythonClient>(
      m, "ParameterClient",
      "A worker's connections to parameter servers. Use it through hetu.ps.Client.")
      .def(nb::init<const std::string&, int, double>(), nb::arg("where"), nb::arg("worker"),
           nb::arg("timeout_s"))
      .def(
          "open",
          [](PythonClient& self, const std::string& name, const Read& initial, int members,
             int member, const nb::object& optimizer, const std::string& rule) {
            ps::Table table{name, static_cast<std::int64_t>(initial.size()), members};
            if (!optimizer.is_none())
              table.optimizer = optimizer_from(nb::cast<nb::dict>(optimizer));
            const std::string found = one_of(rule, {"each", "mean", "sum"});
            table.rule = found == "each"   ? ps::Rule::Each
                         : found == "mean" ? ps::Rule::RoundMean
                                           : ps::Rule::RoundSum;
            return self.open(table, member, initial);
          },
          nb::arg("name"), nb::arg("initial").noconvert(), nb::arg("members"), nb::arg("member"),
          nb::arg("optimizer").none(), nb::arg("rule"))
      .def("push", &PythonClient::push, nb::arg("table"), nb::arg("values").noconvert(),
           nb::arg("rate").none())
      .def("pull", &PythonClient::pull, nb::arg("table"), nb::arg("least").none(),
           nb::arg("into").noconvert(), nb::arg("to_come"))
      .def("wait", &PythonClient::wait, nb::arg("table"), nb::arg("what"))
      .def("states", &PythonClient::states, nb::arg("table"), nb::arg("into").noconvert())
      .def("flush", &PythonClient::flush)
      .def("leave", &PythonClient::leave)
      .def("abandon", &PythonClient::abandon);
  m.def(
      "optimizer_state_names",
      [](const std::string& kind) {
        const Optimizer::Kind found = parse_optimizer(kind);
        std::vector<std::string> names;
        for (int s = 0; s < optimizer_states(found); ++s) {
          names.emplace_back(optimizer_state_name(found, s));
        }
        return names;
      },
      nb::arg("kind"),
      "Returns the names of the states that an optimizer keeps per element, in order.");
}

}  // namespace hetu
